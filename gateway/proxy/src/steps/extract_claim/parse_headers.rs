//! Reads the fields of a dispatch as its gateway stamped them. Nothing is verified here, only parsed.

use fencegate_policies::{
    key::ResourceKey,
    not_after::NotAfter,
    operation::FencingOperationHeader,
    plan::{LockMode, is_spelling_of},
    token::FencingToken,
};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue, VIA},
};

use fencegate_guard_store::{
    admission::PresentedDispatch,
    error::{DispatchRefusedError, MalformedTokenError},
};
use fencegate_http::header_list::list_entries;
use fencegate_protocol::headers::FENCING_TICKET;
use fencegate_ticket::{InvalidTenureTicketError, TicketVerificationError};

/// The number of entries in all `Via` fields (RFC 9110, 7.6.3).
pub(crate) fn count_via_hops(headers: &HeaderMap) -> u32 {
    u32::try_from(list_entries(headers, &VIA).count()).unwrap_or(u32::MAX)
}

/// Reads the dispatch that the fields name.
///
/// # Errors
/// Returns [`DispatchRefusedError::TokenMissing`] only if there is no token at all; anything else that differs from
/// what a gateway stamps is malformed.
pub(crate) fn parse_claim(presented: &HeaderMap) -> Result<PresentedDispatch, DispatchRefusedError> {
    let token = parse_token(presented)?.ok_or(DispatchRefusedError::TokenMissing)?;
    if let Some(number) = single_value(presented, "fencing-number")?
        && number != token.number().to_string()
    {
        return Err(DispatchRefusedError::TokenMalformed(MalformedTokenError::NumberMismatch));
    }
    let keys = ResourceKey::parse_list(required(presented, "fencing-key")?);
    let keys = keys
        .map_err(|_| DispatchRefusedError::TokenMalformed(MalformedTokenError::Unreadable("fencing-key")))?;
    let mode = LockMode::parse(required(presented, "fencing-mode")?);
    let mode =
        mode.ok_or(DispatchRefusedError::TokenMalformed(MalformedTokenError::Unreadable("fencing-mode")))?;
    Ok(PresentedDispatch { keys: keys.into(), token, mode, era: None, parent: None })
}

/// Reads `Fencing-Token`; `None` if the field is absent.
pub fn parse_token(presented: &HeaderMap) -> Result<Option<FencingToken>, DispatchRefusedError> {
    let token = single_value(presented, "fencing-token")?.map(FencingToken::parse).transpose();
    token.map_err(|bad| DispatchRefusedError::TokenMalformed(bad.into()))
}

/// Reads the token of the dispatch in which the service sent this request; `None` if it was not sent inside a dispatch.
pub(crate) fn parse_parent_token(
    presented: &HeaderMap,
) -> Result<Option<FencingToken>, DispatchRefusedError> {
    let token = single_value(presented, "fencing-parent")?.map(FencingToken::parse).transpose();
    token.map_err(|_| DispatchRefusedError::TokenMalformed(MalformedTokenError::Unreadable("fencing-parent")))
}

/// Reads the moment after which the dispatch must not be started; `None` if an older gateway, which does not send it,
/// has stamped the request.
pub(crate) fn parse_not_after(presented: &HeaderMap) -> Result<Option<NotAfter>, DispatchRefusedError> {
    let moment = single_value(presented, "fencing-not-after")?.map(|text| NotAfter::parse(text.as_bytes()));
    moment.transpose().map_err(|_| {
        DispatchRefusedError::TokenMalformed(MalformedTokenError::Unreadable("fencing-not-after"))
    })
}

/// Reads the operation of the request. `keep` is the time in seconds for which it is kept, if the gateway does not send
/// it.
pub(crate) fn parse_operation(
    presented: &HeaderMap,
    keep: u64,
) -> Result<Option<FencingOperationHeader>, DispatchRefusedError> {
    let Some(text) = single_value(presented, "fencing-operation")? else { return Ok(None) };
    let unreadable =
        DispatchRefusedError::TokenMalformed(MalformedTokenError::Unreadable("fencing-operation"));
    FencingOperationHeader::parse(text, keep).map(Some).ok_or(unreadable)
}

/// Reads the ticket of a request.
///
/// # Errors
/// Returns [`TicketVerificationError::Missing`], or [`InvalidTenureTicketError::Repeated`] for two tickets: two readers could take
/// different ones.
pub(crate) fn parse_ticket(presented: &HeaderMap) -> Result<&HeaderValue, TicketVerificationError> {
    let mut fields = presented.get_all(FENCING_TICKET).iter();
    match (fields.next(), fields.next()) {
        (None, _) => Err(TicketVerificationError::Missing),
        (Some(ticket), None) => Ok(ticket),
        (Some(_), Some(_)) => Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Repeated)),
    }
}

/// Returns the ticket if the gateway allows that the service gets it.
pub(crate) fn ticket_for_service(presented: &HeaderMap) -> Option<HeaderValue> {
    let wanted = matches!(single_value(presented, "fencing-nested"), Ok(Some("allow")));
    parse_ticket(presented).ok().filter(|_| wanted).cloned()
}

fn required<'a>(presented: &'a HeaderMap, name: &'static str) -> Result<&'a str, DispatchRefusedError> {
    single_value(presented, name)?
        .ok_or(DispatchRefusedError::TokenMalformed(MalformedTokenError::Missing(name)))
}

/// Reads a field that must stand there once and in the spelling that a gateway writes. Another spelling that some
/// server takes for the same field is an error.
fn single_value<'a>(
    presented: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, DispatchRefusedError> {
    let spelled = |other: &HeaderName| is_spelling_of(other.as_str(), name);
    let mut fields = presented.iter().filter(|(other, _)| spelled(other));
    let Some((own, value)) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err(DispatchRefusedError::TokenMalformed(MalformedTokenError::Repeated(name)));
    }
    if own != name {
        return Err(DispatchRefusedError::TokenMalformed(MalformedTokenError::Misspelled(name)));
    }
    value
        .to_str()
        .map(Some)
        .map_err(|_| DispatchRefusedError::TokenMalformed(MalformedTokenError::Unreadable(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "v1-00000000000000ab-00000007-00000001";

    fn fields(fields: &[(&str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        let mut map = HeaderMap::new();
        for (name, value) in fields.iter().map(field) {
            map.append(name, value);
        }
        map
    }

    /// Each entry of `Via` counts as a hop, also beside malformed bytes.
    #[test]
    fn hop_counts_beside_malformed_bytes() {
        let mut headers = fields(&[("Via", "1.1 one, 2 two")]);
        headers.append(VIA, HeaderValue::from_bytes(b"\x80, , 1.1 three").expect("a value"));
        assert_eq!(count_via_hops(&headers), 4);
    }

    /// The claim that a gateway stamps is read with its token, mode and keys.
    #[test]
    fn stamped_claim_is_read() {
        let stamped = fields(&[
            ("fencing-token", TOKEN),
            ("fencing-number", "171"),
            ("fencing-key", "account/1, account/2"),
            ("fencing-mode", "shared"),
        ]);
        let claim = parse_claim(&stamped).expect("as stamped");
        assert_eq!(
            (claim.token.to_string().as_str(), claim.mode, claim.keys.len()),
            (TOKEN, LockMode::Shared, 2)
        );
    }

    /// A token, number, key or mode that no gateway would stamp is malformed.
    #[test]
    fn unstampable_claim_is_malformed() {
        let key = ("fencing-key", "a");
        let mode = ("fencing-mode", "exclusive");
        for (name, bad) in [
            ("a number", vec![("fencing-token", "9223372036854775807"), key, mode]),
            ("negative", vec![("fencing-token", "-1"), key, mode]),
            ("a float", vec![("fencing-token", "1e30"), key, mode]),
            ("a sign", vec![("fencing-token", "+5"), key, mode]),
            ("zeros", vec![("fencing-token", "007"), key, mode]),
            ("empty", vec![("fencing-token", ""), key, mode]),
            ("too large", vec![("fencing-token", "v1-8000000000000000-00000000-00000001"), key, mode]),
            ("two", vec![("fencing-token", TOKEN), ("fencing-token", TOKEN), key, mode]),
            ("two spellings", vec![("fencing-token", TOKEN), ("fencing_token", TOKEN), key, mode]),
            ("another spelling", vec![("fencing_token", TOKEN), key, mode]),
            ("a key in another spelling", vec![("fencing-token", TOKEN), ("fencing.key", "a"), mode]),
            ("other number", vec![("fencing-token", TOKEN), ("fencing-number", "172"), key, mode]),
            ("zeros in the number", vec![("fencing-token", TOKEN), ("fencing-number", "0171"), key, mode]),
            ("no key", vec![("fencing-token", TOKEN), mode]),
            ("no mode", vec![("fencing-token", TOKEN), key]),
            ("bad key", vec![("fencing-token", TOKEN), ("fencing-key", "b, a"), mode]),
            ("bad mode", vec![("fencing-token", TOKEN), key, ("fencing-mode", "Exclusive")]),
        ] {
            let refused = parse_claim(&fields(&bad)).expect_err(name);
            assert!(matches!(refused, DispatchRefusedError::TokenMalformed(_)), "{name}: {refused:?}");
        }
        assert_eq!(parse_claim(&fields(&[key, mode])).expect_err("none"), DispatchRefusedError::TokenMissing);
    }

    /// A `Fencing-Not-After` that no gateway would stamp is malformed, and so is one that is repeated or respelled.
    #[test]
    fn unstampable_deadline_is_malformed() {
        assert_eq!(parse_not_after(&HeaderMap::new()), Ok(None));
        let stamped = fields(&[("fencing-not-after", "1795727217123")]);
        assert_eq!(parse_not_after(&stamped), Ok(Some(NotAfter::new(1_795_727_217_123, None))));
        for bad in [
            vec![("fencing-not-after", "")],
            vec![("fencing-not-after", "-1")],
            vec![("fencing-not-after", "soon")],
            vec![("fencing-not-after", "1"), ("fencing-not-after", "1")],
            vec![("fencing-not-after", "1"), ("fencing_not_after", "2")],
            vec![("fencing_not_after", "1795727217123")],
        ] {
            let refused = parse_not_after(&fields(&bad)).expect_err("malformed");
            assert!(matches!(refused, DispatchRefusedError::TokenMalformed(_)), "{bad:?}: {refused:?}");
        }
    }

    /// A request without a ticket is refused because the ticket is missing, and one with two tickets as invalid.
    #[test]
    fn request_has_exactly_one_ticket() {
        let mut headers = HeaderMap::new();
        assert_eq!(parse_ticket(&headers), Err(TicketVerificationError::Missing));
        assert_eq!(
            DispatchRefusedError::from(TicketVerificationError::Missing).code().as_str(),
            "ticket-missing"
        );
        let value = HeaderValue::from_static("a.b.c");
        headers.append(FENCING_TICKET, value.clone());
        assert_eq!(parse_ticket(&headers), Ok(&value));
        headers.append(FENCING_TICKET, value);
        assert_eq!(
            parse_ticket(&headers),
            Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Repeated))
        );
    }
}
