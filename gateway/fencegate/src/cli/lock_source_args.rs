//! The source of a command's lock: ZooKeeper directly, as a policy configures it, or a gateway.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use fencegate_client::{Client, GatewayUrl};
use fencegate_exec::{
    gateway_lease::GatewayLeaseSource, lock_source::CommandLockSource, zookeeper_lock::ZooKeeperLockSource,
};
use fencegate_policies::{key::ResourceKey, plan};
use fencegate_process::client_tls::client_config;
use fencegate_ticket::read_secret;

use super::{config::ConfigArgs, out::report_error};

#[derive(Debug, Args)]
pub(super) struct LockSourceArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// A gateway that grants leases: `http://host:port` or `https://host:port`. Several are tried in turn.
    #[arg(long, value_name = "URL", value_parser = parse_endpoint, conflicts_with = "config")]
    gateway: Vec<GatewayUrl>,
    /// The file of the token that identifies this client to gateways.
    #[arg(long, value_name = "FILE", requires = "gateway")]
    bearer_file: Option<PathBuf>,
    /// The CA of the gateways' certificates. Default: the CAs that the system trusts.
    #[arg(long, value_name = "FILE", requires = "gateway")]
    ca_file: Option<PathBuf>,
    /// The certificate that identifies this client to gateways.
    #[arg(long, value_name = "FILE", requires = "key_file")]
    certificate_file: Option<PathBuf>,
    /// The private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "certificate_file")]
    key_file: Option<PathBuf>,
    /// How long the lock outlives this process and its machine. Default: the session timeout of the policy, or the
    /// gateway's default for leases.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
}

impl LockSourceArgs {
    /// The source of the lock for `key`. `note` is shown to other clients as the note of the holder.
    ///
    /// # Errors
    /// Returns an exit code if a file cannot be read or has a mistake, or if no request of the policy can have the
    /// key; the reason is on stderr. A key for a gateway is checked by the gateway.
    pub(super) fn source(
        &self,
        key: &ResourceKey,
        note: Option<String>,
    ) -> Result<CommandLockSource, ExitCode> {
        if self.gateway.is_empty() {
            let plan = self.config.plan()?;
            plan.serving.parse_key(key.as_str()).map_err(|bad| report_error(&bad))?;
            return Ok(CommandLockSource::Ensemble(Box::new(ZooKeeperLockSource::new(plan, self.ttl))));
        }
        let bearer =
            self.bearer_file.as_deref().map(read_secret).transpose().map_err(|bad| report_error(&bad))?;
        let client = self.certificate_file.clone().zip(self.key_file.clone());
        let client = client.map(|(chain, key)| plan::ClientCertificateFiles { chain, key });
        let tls = plan::ClientTls { ca_file: self.ca_file.clone(), server_name: None, client };
        let secured = self.gateway.iter().any(GatewayUrl::is_tls).then(|| client_config(&tls));
        let secured = secured.transpose().map_err(|bad| report_error(&bad))?.map(|mut secured| {
            secured.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(secured)
        });
        let bearer = bearer.as_deref().map(<[u8]>::trim_ascii);
        let client =
            Client::with_gateways(&self.gateway, bearer, secured).map_err(|bad| report_error(&bad))?;
        Ok(CommandLockSource::Gateway(GatewayLeaseSource::new(client, self.ttl, note)))
    }
}

fn parse_endpoint(url: &str) -> Result<GatewayUrl, &'static str> {
    GatewayUrl::parse(url).map_err(|_| "not `http://host:port` or `https://host:port`")
}
