//! The smallest proxy on Pingora: `fencegate-pingora LISTEN UPSTREAM` passes every request on.

use std::{env, error::Error, sync::Arc};

use async_trait::async_trait;
use pingora_core::{
    server::{Server, configuration::ServerConf},
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

struct PassOn {
    upstream: String,
}

#[async_trait]
impl ProxyHttp for PassOn {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream.as_str(), false, String::new())))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [listen, upstream] = <[String; 2]>::try_from(env::args().skip(1).collect::<Vec<_>>())
        .map_err(|_| "usage: fencegate-pingora LISTEN UPSTREAM")?;
    // By default a service has one thread. Each thread keeps 128 connections to its upstream:
    // https://github.com/cloudflare/pingora/blob/main/docs/user_guide/conf.md
    let configuration = ServerConf { threads: 2, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let mut proxy = http_proxy_service(&Arc::clone(&server.configuration), PassOn { upstream });
    proxy.add_tcp(&listen);
    server.add_service(proxy);
    server.run_forever()
}
