//! The defects that a key can have.

/// The defect of a key. The texts quote no part of the key, because it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TicketJwkError {
    #[error("not a JSON Web Key (RFC 7517), at line {line}, column {column}")]
    Jwk { line: usize, column: usize },
    #[error("not a JSON Web Key Set (RFC 7517, 5), at line {line}, column {column}")]
    Set { line: usize, column: usize },
    #[error("not an Ed25519 key (RFC 8037: `kty` OKP, `crv` Ed25519, `x` and `d` of 32 bytes each)")]
    Kind,
    #[error("`d` is not the private half of `x`")]
    Halves,
    #[error("`kid` is empty, longer than 128 bytes, or has control characters")]
    Kid,
    #[error("two keys have one `kid`")]
    Duplicate,
    #[error(
        "holds a private key; whoever checks tickets needs only what `fencegate keys public KEYFILE` prints"
    )]
    Private,
    #[error(
        "holds only a public key; tickets are signed with the file that `fencegate keys new KEYFILE` made"
    )]
    OnlyPublic,
    #[error("holds no Ed25519 key to check tickets with")]
    NoKey,
    #[error("holds no public key of the algorithms that the policy lists for this issuer")]
    NoKeyOfAlgorithms,
    #[error(
        "holds a private key, so whoever has read it can make tokens; the issuer has to replace that key"
    )]
    PrivateInSet,
    #[error(
        "a shared secret has no public half; give the same file to the guard, and nothing to anybody else"
    )]
    Shared,
    #[error(
        "not a secret: one line of at least {SHORTEST} printable ASCII characters; `fencegate keys new --hs256 KEYFILE` \
         makes one"
    )]
    Secret,
}

/// The fewest bytes of a shared secret, as HS256 requires (RFC 7518, 3.2).
pub(super) const SHORTEST: usize = 32;
