//! Sends requests with h2load, which speaks HTTP/1.1 and HTTP/2.

use std::time::Duration;

use fencegate_testkit::child::ChildProcess;

use crate::result::BenchResult;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct H2load {
    pub(crate) spoken: HttpVersion,
    pub(crate) connections: u32,
    /// The number of concurrent requests on each connection.
    pub(crate) at_once: u32,
}

impl H2load {
    /// Returns the number of responses, and their number per second.
    pub(crate) fn run(self, url: &str, window: Duration) -> BenchResult<(f64, f64)> {
        let Self { spoken, connections, at_once } = self;
        let version = match spoken {
            HttpVersion::Http1 => "--h1 ",
            HttpVersion::Http2 => "",
        };
        let seconds = window.as_secs();
        let words = format!(
            "{version}--duration {seconds} --clients {connections} --max-concurrent-streams {at_once} --threads 2 {url}"
        );
        let child = ChildProcess::spawn("h2load", words.split(' '))?;
        child.wait_line(|line| line.starts_with("status codes: "), window + Duration::from_mins(1))?;
        let requests = parse_output(&child.log())?;
        Ok((requests, requests / window.as_secs_f64()))
    }
}

/// Reads the number of successful responses from the output. A single failed request is an error.
fn parse_output(said: &str) -> BenchResult<f64> {
    let wrong = || format!("h2load said:\n{said}");
    let line = said.lines().find_map(|line| line.strip_prefix("status codes: ")).ok_or_else(wrong)?;
    let counts = line.split(", ").map(|part| part.split_once(' '));
    let counts = counts.map(|part| part.and_then(|(count, _)| count.parse::<f64>().ok()));
    let counts: Vec<f64> = counts.collect::<Option<_>>().ok_or_else(wrong)?;
    let failed = said.lines().find(|line| line.starts_with("requests: ")).ok_or_else(wrong)?;
    match &counts[..] {
        [good, others @ ..] if *good > 0.0 && others.iter().all(|&count| count == 0.0) => {
            if [" 0 failed", " 0 errored", " 0 timeout"].iter().all(|part| failed.contains(part)) {
                Ok(*good)
            } else {
                Err(wrong().into())
            }
        }
        _ => Err(wrong().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "finished in 1.00s, 51234.00 req/s, 5.30MB/s\n\
        requests: 51234 total, 51298 started, 51234 done, 51234 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 51234 2xx, 0 3xx, 0 4xx, 0 5xx\n";

    #[test]
    fn successful_responses_are_counted() {
        assert_eq!(parse_output(SAID).expect("all were good"), 51234.0);
    }

    /// Responses other than 2xx, failed requests and missing output are an error.
    #[test]
    fn failed_responses_are_error() {
        for bad in [
            SAID.replace("0 4xx", "3 4xx"),
            SAID.replace("0 errored", "1 errored"),
            SAID.replace("51234 2xx", "0 2xx"),
            String::new(),
        ] {
            parse_output(&bad).expect_err(&bad);
        }
    }
}
