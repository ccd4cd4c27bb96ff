//! Queries the admin listener of a running gateway or guard, for the verbs that need it.

use std::{
    ffi::OsString,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use fencegate_http_client::{
    json_client::{JsonClient, JsonClientError, JsonClientResponse, StreamedResponse},
    upstream::tls::UpstreamTlsConnector,
};
use fencegate_policies::plan;
pub(super) use fencegate_process::command_hint::CommandHintTarget;
use fencegate_process::{client_tls::TlsClientConfigError, command_hint, display};
use fencegate_ticket::{KeyFileError, read_secret};
use hyper::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::LocalSet;

use super::{
    config::{self, AdminTargetSource},
    policy,
    registration::GatewayHeartbeatLookup,
};

/// The process to ask, and the credentials to show it.
#[derive(Debug, Args)]
pub(super) struct AdminTargetArgs {
    /// The file that the process was started with. It has the address of the admin listener, and the credentials that
    /// it asks for.
    ///
    /// The process is found by --admin or -c; else by $FENCEGATE_ADMIN; else by $FENCEGATE_CONFIG; else by
    /// /etc/fencegate/policy.yaml (of a guard: guard.yaml); else at 127.0.0.1:9901 (of a guard: 9902).
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Its admin listener: `host:port`, `http://host:port` or `https://host:port`.
    #[arg(long, value_name = "URL", conflicts_with = "policy")]
    admin: Option<String>,
    /// The file of the token for the admin listener. Default: the file that the policy names.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The CA of the listener's certificate. Default: the CAs that the system trusts.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The certificate to show, if the listener asks for one.
    #[arg(long, value_name = "FILE", requires = "key_file")]
    certificate_file: Option<PathBuf>,
    /// The private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "certificate_file")]
    key_file: Option<PathBuf>,
    /// The longest wait for one answer of the process, such as `3s`. Default: 10s, and 60s for what changes something,
    /// because the process may have to write that to its disk.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// The address to query, and the credentials.
#[derive(Debug, Clone)]
pub(super) struct AdminTarget {
    /// Host and port.
    pub(super) admin: String,
    /// True if the address is the default one. It may then belong to another process.
    guessed: bool,
    token: Option<PathBuf>,
    tls: Option<plan::ClientTls>,
    pub(super) timeout: Option<Duration>,
    /// The place of the process in ZooKeeper; known only of a gateway that was found by its policy.
    registration: Option<GatewayHeartbeatLookup>,
}

/// The reason for which the verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminClientError {
    #[error("cannot start the async runtime")]
    Runtime(#[from] io::Error),
    #[error(
        "FG0601: cannot find the admin listener at {admin}; `--admin` takes `host:port` or a URL without a path"
    )]
    NoHost { admin: String, source: io::Error },
    #[error("FG0601: the admin listener at {admin} did not answer: {}; {}", display::error_chain(.why), if *.guessed {
        "that is where it is unless `--admin URL`, `-c FILE`, FENCEGATE_ADMIN or FENCEGATE_CONFIG says otherwise, in this order"
    } else {
        "is the process running, and is that its admin address?"
    })]
    NoAnswer { admin: String, guessed: bool, why: JsonClientError },
    #[error("cannot read the token for {admin}")]
    Token { admin: String, source: KeyFileError },
    #[error(
        "FG0602: {admin} refuses access: {said}; `--token-file` names the token, `--certificate-file` a \
         certificate"
    )]
    AccessDenied { admin: String, said: String },
    #[error("cannot use TLS with {admin}")]
    Tls { admin: String, source: TlsClientConfigError },
    #[error("{said}")]
    NotFound { said: String },
    /// A refusal of the process. `reason`: its word for programs.
    #[error("{said}")]
    Refused { reason: String, said: String },
    #[error("FG0601: {admin} is not the admin address of {what}")]
    WrongProcess { admin: String, what: &'static str },
}

impl AdminTargetArgs {
    pub(super) fn resolve(&self, of: CommandHintTarget) -> Result<AdminTarget, ExitCode> {
        let client = self.certificate_file.clone().zip(self.key_file.clone());
        let client = client.map(|(chain, key)| plan::ClientCertificateFiles { chain, key });
        let tls = plan::ClientTls { ca_file: self.ca_file.clone(), server_name: None, client };
        command_hint::set_command_arguments(of, self.to_args());
        let (url, guessed) = match config::resolve_target(self.admin.as_deref(), self.policy.as_deref(), of) {
            AdminTargetSource::File(file) => return self.resolve_from_file(&file, of, tls),
            AdminTargetSource::Admin(url) => (url, false),
            AdminTargetSource::Default(url) => (url.to_owned(), true),
        };
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
        let secured = scheme.eq_ignore_ascii_case("https");
        let admin = rest.trim_end_matches('/').to_owned();
        Ok(AdminTarget {
            admin,
            guessed,
            token: self.token_file.clone(),
            tls: secured.then_some(tls),
            timeout: self.timeout,
            registration: None,
        })
    }

    fn resolve_from_file(
        &self,
        file: &Path,
        of: CommandHintTarget,
        tls: plan::ClientTls,
    ) -> Result<AdminTarget, ExitCode> {
        let (admin, registration) = match of {
            CommandHintTarget::Gateway => {
                let gateway = policy::read_gateway_quietly(file)?;
                let registration = GatewayHeartbeatLookup::new(&gateway);
                (gateway.serving.admin, Some(registration))
            }
            CommandHintTarget::Guard => (policy::read_guard_quietly(file)?.serving.admin, None),
        };
        Ok(AdminTarget {
            admin: connect_address(admin.address).to_string(),
            guessed: false,
            token: self.token_file.clone().or(admin.bearer),
            // The command connects to an IP address, which no certificate contains, so the certificate is checked for
            // `localhost`.
            tls: admin.tls.map(|_| plan::ClientTls { server_name: Some("localhost".into()), ..tls }),
            timeout: self.timeout,
            registration,
        })
    }
}

impl AdminTarget {
    /// Leaves the token out, for queries that need no credentials. The token file need not be readable then.
    pub(super) fn without_token(self) -> Self {
        Self { token: None, ..self }
    }

    /// Switches off the note about a slow answer, for a verb that draws on the terminal while it waits.
    pub(super) fn without_notes(self) -> Self {
        Self { registration: None, ..self }
    }
}

impl AdminTargetArgs {
    /// The policy that the command line names.
    pub(super) fn file(&self) -> Option<&Path> {
        self.policy.as_deref()
    }

    /// The arguments for the same target, to be repeated in printed commands.
    fn to_args(&self) -> Vec<OsString> {
        let files = [
            ("-c", &self.policy),
            ("--token-file", &self.token_file),
            ("--ca-file", &self.ca_file),
            ("--certificate-file", &self.certificate_file),
            ("--key-file", &self.key_file),
        ];
        let admin = self.admin.iter().flat_map(|admin| ["--admin".into(), admin.into()]);
        let files = files.into_iter().filter_map(|(name, file)| Some([name.into(), file.clone()?.into()]));
        admin.chain(files.flatten()).collect()
    }
}

/// The address by which this machine reaches the listener: loopback for a listener on all addresses.
fn connect_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let here: IpAddr =
            if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        address.set_ip(here);
    }
    address
}

/// A connection to an admin listener.
pub(super) struct AdminClient {
    admin: String,
    guessed: bool,
    client: JsonClient,
    what: &'static str,
    timeout: Option<Duration>,
    registration: Option<GatewayHeartbeatLookup>,
}

/// The default time limit for a query that changes nothing.
const LOOK: Duration = Duration::from_secs(10);
/// The default time limit for a change. The process may have to write its decision to disk.
const CHANGE: Duration = Duration::from_secs(60);

impl AdminClient {
    pub(super) async fn connect(
        found: &AdminTarget,
        of: CommandHintTarget,
    ) -> Result<Self, AdminClientError> {
        let admin = found.admin.clone();
        let no_host = |source| AdminClientError::NoHost { admin: admin.clone(), source };
        let mut addresses = tokio::net::lookup_host(&admin).await.map_err(no_host)?;
        let address = addresses.next().ok_or_else(|| no_host(io::ErrorKind::NotFound.into()))?;
        let mut client = JsonClient::new(address).with_host(&admin);
        if let Some(file) = &found.token {
            let token = read_secret(file)
                .map_err(|source| AdminClientError::Token { admin: admin.clone(), source })?;
            client = client.with_bearer(token.trim_ascii());
        }
        if let Some(tls) = &found.tls {
            let secured = UpstreamTlsConnector::open(tls)
                .map_err(|source| AdminClientError::Tls { admin: admin.clone(), source })?;
            client = client.with_tls(secured);
        }
        let what = match of {
            CommandHintTarget::Gateway => "a gateway",
            CommandHintTarget::Guard => "a guard",
        };
        Ok(Self {
            admin: found.admin.clone(),
            guessed: found.guessed,
            client,
            what,
            timeout: found.timeout,
            registration: found.registration.clone(),
        })
    }

    /// Waits for an answer. If the answer takes long, the state of the process in ZooKeeper is reported once.
    async fn wait<T>(&mut self, call: impl AsyncFnOnce(&mut JsonClient) -> T) -> T {
        let Some(registration) = self.registration.clone() else { return call(&mut self.client).await };
        let admin = &self.admin;
        let mut told = false;
        let note = async {
            registration.report_slow_answer(admin).await;
            told = true;
            std::future::pending::<std::convert::Infallible>().await
        };
        let answer = tokio::select! {
            biased;
            answer = call(&mut self.client) => answer,
            never = note => match never {},
        };
        if told {
            self.registration = None;
        }
        answer
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<Value, AdminClientError> {
        let limit = self.timeout.unwrap_or(LOOK);
        let answer = self.wait(async |client| client.get(path, limit).await).await;
        self.success_body(answer)
    }

    /// The response with its status, for queries with several successful statuses. Gives up after `patience`.
    pub(super) async fn get_response(
        &mut self,
        path: &str,
        patience: Duration,
    ) -> Result<JsonClientResponse, AdminClientError> {
        let answer = self.wait(async |client| client.get(path, patience).await).await;
        answer.map_err(|source| self.no_answer_error(source))
    }

    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Result<Value, AdminClientError> {
        let limit = self.timeout.unwrap_or(CHANGE);
        let answer = self.wait(async |client| client.post(path, body, limit).await).await;
        self.success_body(answer)
    }

    /// The response to a change with its status, for changes with several successful statuses.
    pub(super) async fn post_response(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<JsonClientResponse, AdminClientError> {
        let limit = self.timeout.unwrap_or(CHANGE);
        let answer = self.wait(async |client| client.post(path, body, limit).await).await;
        let answer = answer.map_err(|source| self.no_answer_error(source))?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
                Err(self.refusal_error(&answer))
            }
            _ => Ok(answer),
        }
    }

    /// Posts a request whose response is read in parts.
    pub(super) async fn post_stream(&mut self, path: &str) -> Result<StreamedResponse, AdminClientError> {
        let limit = self.timeout.unwrap_or(CHANGE);
        let begun = self.wait(async |client| client.post_stream(path, limit).await).await;
        let begun = begun.map_err(|source| self.no_answer_error(source))?;
        begun.map_err(|answer| self.refusal_error(&answer))
    }

    fn success_body(
        &self,
        answer: Result<JsonClientResponse, JsonClientError>,
    ) -> Result<Value, AdminClientError> {
        let answer = answer.map_err(|source| self.no_answer_error(source))?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(self.refusal_error(&answer)) }
    }

    pub(super) fn no_answer_error(&self, source: JsonClientError) -> AdminClientError {
        AdminClientError::NoAnswer { admin: self.admin.clone(), guessed: self.guessed, why: source }
    }

    fn refusal_error(&self, answer: &JsonClientResponse) -> AdminClientError {
        let admin = self.admin.clone();
        let Some(said) = answer.body["error"].as_str().map(str::to_owned) else {
            return self.wrong_process_error();
        };
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
                AdminClientError::AccessDenied { admin, said }
            }
            StatusCode::NOT_FOUND => AdminClientError::NotFound { said },
            _ => AdminClientError::Refused {
                reason: answer.body["reason"].as_str().unwrap_or_default().to_owned(),
                said,
            },
        }
    }

    /// The error that the process at the address is of another kind.
    pub(super) fn wrong_process_error(&self) -> AdminClientError {
        AdminClientError::WrongProcess { admin: self.admin.clone(), what: self.what }
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, value: Value) -> Result<T, AdminClientError> {
        serde_json::from_value(value).map_err(|_| self.wrong_process_error())
    }
}

/// Runs one query on its own tokio runtime.
pub(super) fn with_client<R>(
    found: &AdminTarget,
    of: CommandHintTarget,
    question: impl AsyncFnOnce(&mut AdminClient) -> Result<R, AdminClientError>,
) -> Result<R, AdminClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A session with ZooKeeper spawns local tasks, so it needs a `LocalSet`.
    LocalSet::new().block_on(&runtime, async {
        let mut asker = AdminClient::connect(found, of).await?;
        question(&mut asker).await
    })
}
