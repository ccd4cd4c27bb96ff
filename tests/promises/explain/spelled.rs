//! Random requests, the same in every run: most of them are plain, and some have each kind of unusual part.

use bytes::Bytes;
use fencegate_check::explain::SampleRequest;

/// SplitMix64: the same requests in every run.
pub(super) struct SmallRng(pub(super) u64);

impl SmallRng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).expect("fewer than sides")
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

/// The host of all requests.
pub(super) const HOST: &str = "b.shops.example";

/// A request as it is spelled on the wire.
#[derive(Debug)]
pub(super) struct SpelledRequest {
    pub(super) line: String,
    pub(super) fields: Vec<String>,
    pub(super) body: &'static str,
}

const METHODS: [&str; 12] =
    ["POST", "POST", "POST", "POST", "GET", "GET", "HEAD", "PUT", "DELETE", "post", "OPTIONS", "TRACE"];
const VALUES: [&str; 19] = [
    "42", "42", "%34%32", "042", "A7", "a7", "%C3%A9", "a%20b", "a@b", "a%40b", "a%2Fb", "a;b", "..",
    "%2e%2e", "", "%zz", "x%00", "%ff", "a%252Fb",
];
const TAILS: [&str; 14] = [
    "",
    "",
    "",
    "",
    "/",
    "?currency=EUR",
    "?currency=%65ur",
    "?currency=a&currency=b",
    "?a;b",
    "?currency=",
    "?mode=full",
    "?x=1&mode=f%75ll",
    "?mode=full&mode=full",
    "?mode=half",
];
const FIELDS: [&str; 22] = [
    "x-job: import",
    "x-job: export",
    "host: acme.shops.example",
    "host: a.shops.example",
    "host: B.Shops.Example:80",
    "x-merchant-id: M1",
    "x-merchant-id:  m1 ",
    "X-Merchant-Id: M2",
    "x_merchant_id: M2",
    "connection: x-merchant-id, close-not",
    "fencing-token: v1-ffff",
    "Fencing_Key: order/1",
    "idempotency-key: ",
    "idempotency-key: \"quoted\"",
    "prefer: wait=1",
    "te: trailers",
    "keep-alive: timeout=5",
    "expect: 200-ok",
    "trailer: x",
    "host: Shop.Example.",
    "host: shop.example, other",
    "accept: */*",
];
const BODIES: [&str; 8] = [
    "",
    r#"{"sku": "A7", "from": "berlin", "to": "turin"}"#,
    r#"{"sku": "a7", "from": "turin", "to": "berlin", "pieces": 3}"#,
    r#"{"sku": "A7", "from": "turin", "to": "turin"}"#,
    r#"{"sku": 7, "from": null, "to": "turin"}"#,
    r#"{"Sku": "A7", "from": "berlin", "to": "turin"}"#,
    r#"{"sku": "A7", "sku": "A8", "from": "x", "to": "y"}"#,
    "from=berlin&to=turin",
];

/// A value for a path. Most values are plain, so that enough requests reach a lock.
fn value(rng: &mut SmallRng) -> &'static str {
    if rng.roll(4) > 0 { rng.pick(&VALUES[..4]) } else { rng.pick(&VALUES) }
}

impl SpelledRequest {
    pub(super) fn roll(rng: &mut SmallRng, number: usize, paths: &[&str]) -> Self {
        let path = rng.pick(paths).replace("{}", value(rng)).replace("{2}", value(rng));
        let mut fields: Vec<String> = (0..rng.roll(4)).map(|_| rng.pick(&FIELDS).to_owned()).collect();
        if rng.roll(3) > 0 {
            fields.push(format!("idempotency-key: key {number}"));
        }
        if rng.roll(2) > 0 {
            fields.push("x-merchant-id: M3".to_owned());
        }
        if rng.roll(2) > 0 {
            fields.push(format!("x-request-id: r-{number}"));
        }
        if rng.roll(8) == 0 {
            fields.push("x-job: import".to_owned());
        }
        fields.push(format!("x-number: {number}"));
        let tail = if rng.roll(2) > 0 { "" } else { rng.pick(&TAILS) };
        let line = format!("{} {path}{tail}", rng.pick(&METHODS));
        Self { line, fields, body: rng.pick(&BODIES) }
    }

    pub(super) fn ask(&self, host: &str) -> SampleRequest {
        SampleRequest::new(&self.line, host, &self.fields, Bytes::from_static(self.body.as_bytes()))
            .expect("a request")
    }

    pub(super) fn bytes(&self, host: &str) -> Vec<u8> {
        let mut head = format!("{} HTTP/1.1\r\n", self.line);
        if !self.fields.iter().any(|field| field.starts_with("host:")) {
            head.push_str(&format!("host: {host}\r\n"));
        }
        for field in &self.fields {
            head.push_str(&format!("{field}\r\n"));
        }
        if !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        format!("{head}\r\n{}", self.body).into_bytes()
    }
}
