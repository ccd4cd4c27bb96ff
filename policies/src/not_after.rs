//! The moment after which a dispatch must not be started: the value of the field `Fencing-Not-After`.
//!
//! The value is an Item of RFC 9651: an Integer, the milliseconds since 1970-01-01 UTC, and two parameters, both or
//! none, each once. `boot` is the boot id of the sender's kernel, and `uptime` is the same moment in milliseconds of
//! its CLOCK_BOOTTIME. A reader on the kernel that `boot` names needs no agreement of clocks. Unknown parameters are
//! ignored. Each number has only one valid spelling, without sign and leading zeros, so that no two readers differ
//! about a moment.

use std::{fmt, time::Duration};

/// A moment after which a dispatch must not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAfter {
    unix_ms: u64,
    uptime: Option<BootClockMoment>,
}

/// A moment on the boot clock of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootClockMoment {
    boot: BootId,
    ms: u64,
}

/// The id of one boot of a kernel: a UUID in lower case, as in `/proc/sys/kernel/random/boot_id`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BootId([u8; 36]);

/// The reason for which a field value is no [`NotAfter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseNotAfterError {
    #[error("the moment is longer than {} bytes", NotAfter::LONGEST)]
    TooLong,
    #[error("the moment is not a number of at most 15 digits, without sign and leading zeros")]
    NotMillis,
    #[error("a parameter of the moment cannot be read")]
    Parameter,
    #[error("`boot` is not a string")]
    Boot,
    #[error("`uptime` is not a number of milliseconds")]
    Uptime,
    #[error("`boot` or `uptime` occurs twice")]
    Twice,
    #[error("of `boot` and `uptime` one is missing")]
    OneOfTwo,
    #[error("the value is followed by other characters")]
    Trailing,
}

use ParseNotAfterError as Error;

impl NotAfter {
    /// The longest value of the field that is read, in bytes.
    pub const LONGEST: usize = 128;

    /// The largest Integer of RFC 9651.
    const LARGEST: u64 = 999_999_999_999_999;

    /// Makes a moment. `unix_ms`: milliseconds since 1970 on the wall clock; a moment too late for the format becomes
    /// the latest that fits.
    pub fn new(unix_ms: u64, uptime: Option<BootClockMoment>) -> Self {
        Self { unix_ms: unix_ms.min(Self::LARGEST), uptime }
    }

    /// Reads the value of a field.
    ///
    /// # Errors
    /// Returns an error for anything but one Item of RFC 9651 in the form that the module describes.
    pub fn parse(value: &[u8]) -> Result<Self, ParseNotAfterError> {
        if value.len() > Self::LONGEST {
            return Err(Error::TooLong);
        }
        let mut rest = StructuredItemParser(value);
        let Some(BareItem::Millis(unix_ms)) = rest.number() else { return Err(Error::NotMillis) };
        let mut boot = None;
        let mut uptime = None;
        while rest.eat(b';') {
            rest.skip_spaces();
            let key = rest.parse_parameter_key().ok_or(Error::Parameter)?;
            let item = if rest.eat(b'=') { rest.bare_item() } else { Some(BareItem::Other) };
            let item = item.ok_or(Error::Parameter)?;
            let before = match (key, item) {
                (b"boot", BareItem::String(id)) => boot.replace(id).is_some(),
                (b"boot", _) => return Err(Error::Boot),
                (b"uptime", BareItem::Millis(ms)) => uptime.replace(ms).is_some(),
                (b"uptime", _) => return Err(Error::Uptime),
                _ => false,
            };
            if before {
                return Err(Error::Twice);
            }
        }
        if !rest.0.is_empty() {
            return Err(Error::Trailing);
        }
        let uptime = match (boot, uptime) {
            (None, None) => None,
            // An id that is no UUID cannot be that of a kernel, so only the wall clock is used.
            (Some(boot), Some(ms)) => BootId::parse(boot).map(|boot| BootClockMoment { boot, ms }),
            _ => return Err(Error::OneOfTwo),
        };
        Ok(Self { unix_ms, uptime })
    }

    /// The earlier one of this moment and `unix_ms`, in milliseconds since 1970. The cap applies to both clocks.
    #[must_use]
    pub fn capped_at(self, unix_ms: u64) -> Self {
        let earlier = self.unix_ms.saturating_sub(unix_ms);
        let uptime = self
            .uptime
            .map(|BootClockMoment { boot, ms }| BootClockMoment { boot, ms: ms.saturating_sub(earlier) });
        Self { unix_ms: self.unix_ms - earlier, uptime }
    }

    /// The moment in milliseconds since 1970, on the sender's wall clock.
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// The moment in milliseconds of CLOCK_BOOTTIME; `None` unless the sender runs on the kernel with this `boot` id.
    pub fn uptime_ms(&self, boot: BootId) -> Option<u64> {
        self.uptime.filter(|uptime| uptime.boot == boot).map(|uptime| uptime.ms)
    }

    /// The time that is left on a wall clock that shows `unix_ms` and may differ from the sender's by `clock_error`.
    /// Zero if the moment may have passed.
    pub fn remaining_at(&self, unix_ms: u64, clock_error: Duration) -> Duration {
        Duration::from_millis(self.unix_ms.saturating_sub(unix_ms)).saturating_sub(clock_error)
    }
}

impl BootClockMoment {
    /// A moment on the kernel `boot`. `ms`: milliseconds of CLOCK_BOOTTIME.
    pub fn new(boot: BootId, ms: u64) -> Self {
        Self { boot, ms: ms.min(NotAfter::LARGEST) }
    }
}

impl BootId {
    /// Reads a UUID in lower case; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; 36] = text.try_into().ok()?;
        let is_good = |(index, byte): (usize, &u8)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        id.iter().enumerate().all(is_good).then_some(Self(id))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hex digits and hyphens")
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes the value of the field.
impl fmt::Display for NotAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.unix_ms)?;
        match &self.uptime {
            Some(BootClockMoment { boot, ms }) => write!(f, ";boot=\"{}\";uptime={ms}", boot.as_str()),
            None => Ok(()),
        }
    }
}

/// A bare item of RFC 9651, by the kinds that matter here.
enum BareItem<'a> {
    /// An Integer without sign and without leading zeros.
    Millis(u64),
    /// An Integer in another spelling.
    Integer,
    /// A String: the text between the quotes, with its escapes.
    String(&'a [u8]),
    Other,
}

/// The bytes that are left to read.
struct StructuredItemParser<'a>(&'a [u8]);

impl<'a> StructuredItemParser<'a> {
    fn skip_spaces(&mut self) {
        self.take_while(|byte| byte == b' ');
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.0.first() == Some(&wanted);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn take_while(&mut self, is_wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.0.iter().position(|byte| !is_wanted(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// Reads the key of a parameter (RFC 9651, section 4.2.3.3).
    fn parse_parameter_key(&mut self) -> Option<&'a [u8]> {
        let first = *self.0.first()?;
        let begins = first.is_ascii_lowercase() || first == b'*';
        let is_of_key =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte);
        begins.then(|| self.take_while(is_of_key))
    }

    /// Reads a bare item (RFC 9651, section 4.2.3.1).
    fn bare_item(&mut self) -> Option<BareItem<'a>> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(BareItem::String),
            b':' => self.byte_sequence(),
            b'?' => {
                self.eat(b'?');
                (self.eat(b'0') || self.eat(b'1')).then_some(BareItem::Other)
            }
            b'@' => {
                self.eat(b'@');
                let number = self.number()?;
                matches!(number, BareItem::Millis(_) | BareItem::Integer).then_some(BareItem::Other)
            }
            b'%' => {
                self.eat(b'%');
                self.display_string()
            }
            first if first.is_ascii_alphabetic() || first == b'*' => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(BareItem::Other)
            }
            _ => None,
        }
    }

    /// Reads an Integer of at most 15 digits, or a Decimal of at most 12 digits and 3 after the point (RFC 9651,
    /// section 4.2.4).
    fn number(&mut self) -> Option<BareItem<'a>> {
        let negative = self.eat(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.eat(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let is_decimal = digits.len() <= 12 && (1..=3).contains(&fraction.len());
            return is_decimal.then_some(BareItem::Other);
        }
        if negative || (digits.len() > 1 && digits[0] == b'0') {
            return Some(BareItem::Integer);
        }
        let value = digits.iter().fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
        Some(BareItem::Millis(value))
    }

    /// Reads a String (RFC 9651, section 4.2.5).
    fn string(&mut self) -> Option<&'a [u8]> {
        if !self.eat(b'"') {
            return None;
        }
        let text = self.0;
        let mut length = 0;
        loop {
            match text.get(length)? {
                b'"' => break,
                b'\\' if matches!(text.get(length + 1), Some(b'"' | b'\\')) => length += 2,
                b'\\' => return None,
                b' '..=b'~' => length += 1,
                _ => return None,
            }
        }
        self.0 = &text[length + 1..];
        Some(&text[..length])
    }

    /// Reads a Display String (RFC 9651, section 4.2.10), without checking that its bytes are UTF-8.
    fn display_string(&mut self) -> Option<BareItem<'a>> {
        if !self.eat(b'"') {
            return None;
        }
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        loop {
            self.take_while(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'%');
            if self.eat(b'"') {
                return Some(BareItem::Other);
            }
            match self.0 {
                [b'%', first, second, rest @ ..] if is_hex(first) && is_hex(second) => self.0 = rest,
                _ => return None,
            }
        }
    }

    /// Reads a Byte Sequence (RFC 9651, section 4.2.7).
    fn byte_sequence(&mut self) -> Option<BareItem<'a>> {
        self.eat(b':');
        self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.eat(b':').then_some(BareItem::Other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0b2f1a3c-89ab-4cde-8f01-23456789abcd";

    fn boot() -> BootId {
        BootId::parse(ID.as_bytes()).expect("a UUID")
    }

    /// A deadline is read back as a sender writes it.
    #[test]
    fn written_deadline_is_read() {
        let plain = NotAfter::new(1_795_727_217_123, None);
        assert_eq!(NotAfter::parse(b"1795727217123"), Ok(plain));
        let text = format!("1795727217123;boot=\"{ID}\";uptime=123456789");
        let whole = NotAfter::new(1_795_727_217_123, Some(BootClockMoment::new(boot(), 123_456_789)));
        assert_eq!(NotAfter::parse(text.as_bytes()), Ok(whole));
        assert_eq!(whole.to_string(), text);
        assert_eq!((whole.uptime_ms(boot()), plain.uptime_ms(boot())), (Some(123_456_789), None));
        let other = BootId::parse(b"ffffffff-89ab-4cde-8f01-23456789abcd").expect("a UUID");
        assert_eq!(whole.uptime_ms(other), None);
    }

    /// Further parameters that the standard allows do not change a deadline.
    #[test]
    fn standard_parameters_change_nothing() {
        let read = |text: &str| NotAfter::parse(text.as_bytes());
        let plain = Ok(NotAfter::new(5, None));
        for text in [
            "5",
            "5;a",
            "5;a;a=2",
            "5; a=1.5;b=?0;c=:YWI=:;d=tok/en;e=\"x\\\"y\";f=@-7;g=%\"x%c3%a9\";h=-007;i=@007",
            "5;boot=\"not a kernel\";uptime=7",
        ] {
            assert_eq!(read(text), plain, "{text}");
        }
        let moved = Ok(NotAfter::new(5, Some(BootClockMoment::new(boot(), 9))));
        for text in [format!("5;uptime=9;boot=\"{ID}\""), format!("5;x=1;boot=\"{ID}\";uptime=9")] {
            assert_eq!(read(&text), moved, "{text}");
        }
    }

    /// Any other value is malformed, and never counts as a deadline that has passed.
    #[test]
    fn malformed_deadline_is_never_late() {
        for (text, error) in [
            ("", Error::NotMillis),
            ("-1", Error::NotMillis),
            ("-0", Error::NotMillis),
            ("005", Error::NotMillis),
            (" 5", Error::NotMillis),
            ("5 ", Error::Trailing),
            ("+1", Error::NotMillis),
            ("1.5", Error::NotMillis),
            ("1e30", Error::Trailing),
            ("0x10", Error::Trailing),
            ("1000000000000000", Error::NotMillis),
            ("5, 6", Error::Trailing),
            ("5 6", Error::Trailing),
            ("5;", Error::Parameter),
            ("5;A=1", Error::Parameter),
            ("5;a=", Error::Parameter),
            ("5;a=\"", Error::Parameter),
            ("5;a=\"\\x\"", Error::Parameter),
            ("5;boot=\"x\"", Error::OneOfTwo),
            ("5;uptime=1", Error::OneOfTwo),
            ("5;boot=x;uptime=1", Error::Boot),
            ("5;boot;uptime=1", Error::Boot),
            ("5;boot=\"x\";uptime=-1", Error::Uptime),
            ("5;boot=\"x\";uptime=1.0", Error::Uptime),
            ("5;boot=\"x\";uptime", Error::Uptime),
            ("5;boot=\"x\";uptime=-0", Error::Uptime),
            ("5;boot=\"x\";uptime=01", Error::Uptime),
            ("5;boot=\"x\";uptime=1;uptime=1", Error::Twice),
            ("5;boot=\"x\";boot=\"x\";uptime=1", Error::Twice),
            ("5;a=%\"%C3\"", Error::Parameter),
            ("5;a=%\"%c\"", Error::Parameter),
            ("5;a=%\"x", Error::Parameter),
            ("\t5", Error::NotMillis),
        ] {
            assert_eq!(NotAfter::parse(text.as_bytes()), Err(error), "{text}");
        }
        let long = format!("5;{}", "a".repeat(NotAfter::LONGEST));
        assert_eq!(NotAfter::parse(long.as_bytes()), Err(Error::TooLong));
    }

    #[test]
    fn clock_error_shortens_remaining_time() {
        let moment = NotAfter::new(10_000, None);
        let error = Duration::from_millis(500);
        assert_eq!(moment.remaining_at(9_000, error), Duration::from_millis(500));
        for late in [9_500, 9_501, 10_000, 20_000] {
            assert_eq!(moment.remaining_at(late, error), Duration::ZERO, "{late}");
        }
    }

    /// A cap moves the moment on both clocks, and only to an earlier one.
    #[test]
    fn cap_moves_both_clocks_back() {
        let moment = NotAfter::new(10_000, Some(BootClockMoment::new(boot(), 700)));
        assert_eq!(moment.capped_at(10_000), moment);
        assert_eq!(moment.capped_at(11_000), moment);
        assert_eq!(moment.capped_at(9_900), NotAfter::new(9_900, Some(BootClockMoment::new(boot(), 600))));
        assert_eq!(moment.capped_at(0), NotAfter::new(0, Some(BootClockMoment::new(boot(), 0))));
    }

    fn moments() -> impl Strategy<Value = NotAfter> {
        let uptime = proptest::option::of(("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", any::<u64>()));
        (any::<u64>(), uptime).prop_map(|(unix_ms, uptime)| {
            let uptime = uptime
                .map(|(id, ms)| BootClockMoment::new(BootId::parse(id.as_bytes()).expect("a UUID"), ms));
            NotAfter::new(unix_ms, uptime)
        })
    }

    proptest! {
        #[test]
        fn deadline_round_trips(moment in moments()) {
            let text = moment.to_string();
            prop_assert!(text.len() <= NotAfter::LONGEST);
            prop_assert_eq!(NotAfter::parse(text.as_bytes()), Ok(moment));
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
            NotAfter::parse(&bytes).ok();
        }

        #[test]
        fn deadline_like_text_parses_without_panic(
            text in "[0-9]{1,17}([; ]{0,2}(boot|uptime|[a-z*])(=[-\"0-9a-f@%:?.\\\\]{0,9})?){0,4}",
        ) {
            NotAfter::parse(text.as_bytes()).ok();
        }
    }
}
