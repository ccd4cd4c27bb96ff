//! The pages of peers, as they are registered in ZooKeeper.

use fencegate_lock::manager::admin_query::RegisteredGateway;
use fencegate_zookeeper::peer_endpoint::AdminPageAddress;

/// The address of the page of the gateway `name`, for a reader of the page of `ours`; `None` if a link would
/// lead nowhere.
pub(super) fn peer_page_url<'m>(members: &'m [RegisteredGateway], name: &str, ours: &str) -> Option<&'m str> {
    let pages = |gateway: &str| {
        let of_gateway = members.iter().filter(move |member| member.gateway == *gateway);
        of_gateway.filter_map(|member| member.page.as_ref()).collect::<Vec<_>>()
    };
    // A loopback address would point to the reader's own machine.
    let here = pages(ours);
    let leads = |page: &&AdminPageAddress| {
        page.only_on.is_none() || here.iter().any(|ours| ours.only_on == page.only_on)
    };
    let page = pages(name).into_iter().find(|page| name != ours && leads(page) && is_http_url(&page.url))?;
    Some(&page.url)
}

/// True if the URL is a plain web address. Any client that may write to ZooKeeper can have written the URL, so
/// it could also be a script.
fn is_http_url(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.strip_suffix('/')).filter(|host| !host.is_empty());
    host.is_some_and(|host| {
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(gateway: &str, url: &str, only_on: Option<&str>) -> RegisteredGateway {
        let page = AdminPageAddress { url: url.to_owned(), only_on: only_on.map(str::to_owned) };
        RegisteredGateway {
            gateway: gateway.to_owned(),
            session: String::new(),
            version: None,
            plan: None,
            peer: None,
            page: Some(page),
            ready: true,
            leaving: false,
            silent_ms: 0,
            since: 0,
        }
    }

    /// The page of a peer on a loopback address is linked only from a gateway on the same machine.
    #[test]
    fn loopback_page_links_require_same_machine() {
        let members = [
            member("gw-1", "http://127.0.0.1:1/", Some("here")),
            member("gw-2", "http://127.0.0.1:2/", Some("here")),
            member("gw-3", "http://127.0.0.1:3/", Some("there")),
            member("gw-4", "https://gw-4.internal:9901/", None),
        ];
        let seen = |name, ours| peer_page_url(&members, name, ours);
        assert_eq!(seen("gw-2", "gw-1"), Some("http://127.0.0.1:2/"));
        assert_eq!(seen("gw-3", "gw-1"), None);
        assert_eq!(seen("gw-4", "gw-1"), Some("https://gw-4.internal:9901/"));
        assert_eq!((seen("gw-1", "gw-1"), seen("gw-1", "gw-4"), seen("gw-9", "gw-1")), (None, None, None));
    }

    #[test]
    fn invalid_page_url_gives_no_link() {
        for url in
            ["javascript:alert(1)/", "http:///", "//evil/", "http://a b/", "http://a/?x=\"", "http://a"]
        {
            let members = [member("gw-1", "http://h/", None), member("gw-2", url, None)];
            assert_eq!(peer_page_url(&members, "gw-2", "gw-1"), None, "{url}");
        }
    }
}
