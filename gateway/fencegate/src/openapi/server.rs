//! The path of the servers of a document, below which its paths are.

use serde_json::Value;

use super::document::OpenApiDocument;

/// The path that the `servers` of a document put before each path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BasePath {
    /// The path without a slash at its end; empty if the servers have no path.
    prefix: String,
    /// The URLs by which clients reach the service.
    urls: Vec<String>,
    /// The questions that the document leaves open.
    doubts: Vec<String>,
}

impl BasePath {
    pub(super) fn from_document(document: &OpenApiDocument) -> Self {
        let servers = document.field("servers").and_then(Value::as_array);
        let urls: Vec<_> = servers.into_iter().flatten().filter_map(server_url).collect();
        let mut paths: Vec<_> = urls.iter().map(|url| path_of(url)).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut doubts = Vec::new();
        let prefix = match &*paths {
            [] => "",
            [one] => *one,
            several => {
                let all: Vec<_> = several.iter().map(|path| format!("`{path}/`")).collect();
                doubts.push(format!(
                    "the servers have the paths below {}; those of the first server are taken",
                    all.join(", ")
                ));
                urls.first().map_or("", |url| path_of(url))
            }
        };
        let below = format!("{prefix}/");
        let mut written = document.paths().into_iter().flatten();
        if !prefix.is_empty() && written.all(|(path, _)| path.starts_with(&below)) {
            doubts.push(format!(
                "the server has the path `{prefix}`, and each path begins with it again: by the document clients write it twice"
            ));
        }
        Self { prefix: prefix.to_owned(), urls, doubts }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    pub(super) fn doubts(&self) -> &[String] {
        &self.doubts
    }
}

/// The URL of a server, with the defaults of its variables.
fn server_url(server: &Value) -> Option<String> {
    let url = server.get("url")?.as_str()?.to_owned();
    let variables = server.get("variables").and_then(Value::as_object).into_iter().flatten();
    Some(variables.fold(url, |url, (name, variable)| match variable.get("default").and_then(Value::as_str) {
        Some(default) => url.replace(&format!("{{{name}}}"), default),
        None => url,
    }))
}

/// The path of a URL, without a slash at its end. `url` may also be a path alone.
fn path_of(url: &str) -> &str {
    let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = match (behind_scheme.len() == url.len(), behind_scheme.find('/')) {
        (true, _) => url,
        (false, Some(at)) => &behind_scheme[at..],
        (false, None) => "",
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(servers: &str, path: &str) -> BasePath {
        let text = format!("openapi: 3.0.0\nservers: {servers}\npaths: {{{path}: {{}}}}\n");
        BasePath::from_document(&OpenApiDocument::parse(&text).expect("a document"))
    }

    /// The path of the servers is put before each path. If the servers have different paths, or each path begins with
    /// it already, that is an open question.
    #[test]
    fn prefix_is_path_of_servers() {
        for (servers, path, prefix, doubts) in [
            ("[]", "/a", "", 0),
            ("[{url: 'https://h'}]", "/a", "", 0),
            ("[{url: 'https://h/v1/'}, {url: 'https://test.h/v1'}]", "/a", "/v1", 0),
            ("[{url: /api}]", "/a", "/api", 0),
            ("[{url: 'https://h/{v}/x', variables: {v: {default: v2}}}]", "/a", "/v2/x", 0),
            ("[{url: 'https://h/v2'}, {url: 'https://h/v1'}]", "/a", "/v2", 1),
            ("[{url: 'https://h/v1'}]", "/v1/a", "/v1", 1),
        ] {
            let base = base(servers, path);
            assert_eq!((base.prefix(), base.doubts().len()), (prefix, doubts), "{servers}");
        }
    }
}
