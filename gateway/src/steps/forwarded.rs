//! Lets in on the listener for gateways who shows the pass of this process, and notes what it says of the request.

use std::time::Duration;

use hyper::{HeaderMap, header::HeaderName};
use tokio::time::Instant;

use crate::{
    body::Reply,
    peers::{Forwarded, Pass},
    refusal::{Reason, Refusal},
    stage::Clean,
    step::Serve,
};

/// Says of a request that another gateway sends it on. Believed with our pass only.
pub const FENCING_FORWARDED: HeaderName = HeaderName::from_static("fencing-forwarded");

/// `pass`: ours, where gateways are listened to. On other listeners the field is gone, and nobody has read it.
pub async fn forwarded<S: Serve<Clean>>(
    pass: &Option<Pass>,
    request: Clean,
    next: &S,
) -> Result<Reply, Refusal> {
    let notes = &request.request.notes;
    if notes.of_gateways.get() {
        let known = pass.as_ref().and_then(|pass| believed(&request.presented, pass));
        let Some(forwarded) = known else {
            return Err(Refusal::new(Reason::PeerForbidden, "without the pass of this gateway"));
        };
        notes.forwarded.get_or_init(|| forwarded);
    }
    next.serve(request).await
}

/// The longest wait that is believed.
const LONGEST: Duration = Duration::from_secs(3600);

/// `pass=<hex>; key=<key>; wait=<ms>; from=<gateway>`. A key has no space in it, so `; ` separates.
fn believed(presented: &HeaderMap, ours: &Pass) -> Option<Forwarded> {
    let mut lines = presented.get_all(FENCING_FORWARDED).iter();
    let line = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
    let [pass, key, wait, from] = *line.splitn(4, "; ").collect::<Vec<_>>() else { return None };
    let pass = Pass::parse(pass.strip_prefix("pass=")?).ok()?;
    if pass != *ours {
        return None;
    }
    let wait = Duration::from_millis(wait.strip_prefix("wait=")?.parse().ok()?);
    Some(Forwarded {
        from: from.strip_prefix("from=")?.into(),
        key: key.strip_prefix("key=")?.to_owned(),
        until: Instant::now() + wait.min(LONGEST),
    })
}

/// What [`believed`] reads.
pub fn told(pass: &Pass, key: &str, left: Duration, from: &str) -> String {
    format!("pass={}; key={key}; wait={}; from={from}", pass.as_str(), left.as_millis())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;
    use crate::randomness::SystemRandomness;

    fn presented(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FENCING_FORWARDED, HeaderValue::from_str(line).expect("a value"));
        }
        headers
    }

    #[test]
    fn what_is_told_with_the_pass_is_believed_and_nothing_else() {
        let [ours, other] = [(), ()].map(|()| Pass::new(&SystemRandomness));
        let line = |pass| told(pass, "a;b=c,pass=x", Duration::from_millis(1500), "gw-1");
        let before = Instant::now();
        let read = believed(&presented(&[&line(&ours)]), &ours).expect("believed");
        assert_eq!((&*read.from, &*read.key), ("gw-1", "a;b=c,pass=x"));
        assert!(read.until >= before + Duration::from_millis(1500));
        assert!(read.until <= Instant::now() + Duration::from_millis(1500));
        let hex = ours.as_str();
        for bad in [
            vec![line(&other)],
            vec![line(&ours), line(&ours)],
            vec![],
            vec![format!("pass={hex}")],
            vec![format!("pass={hex}; key=a; wait=-1; from=gw")],
            vec![format!("pass={hex}; key=a; wait=99999999999999999999999; from=gw")],
            vec![format!("pass=; key=a; wait=1; from=gw")],
        ] {
            let lines: Vec<&str> = bad.iter().map(String::as_str).collect();
            assert_eq!(believed(&presented(&lines), &ours), None, "{bad:?}");
        }
        let long = format!("pass={hex}; key=a; wait={}; from=gw", u64::MAX);
        let read = believed(&presented(&[&long]), &ours).expect("believed");
        assert!(read.until <= Instant::now() + LONGEST, "a wait without end");
    }
}
