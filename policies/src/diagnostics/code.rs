//! The codes of all mistakes. Each kind of mistake has one code, and a number is never used again for another kind.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// With such a mistake the file yields no plan.
    Error,
    /// The file yields a plan, but the plan may not be what its author wanted.
    Warning,
    /// The plan probably is what its author wanted. A hint is shown only on request.
    Hint,
}

macro_rules! codes {
    ($($name:ident $number:literal $severity:ident $meaning:literal)*) => {
        /// `FG01..` the form of the file, `FG02..` routes and keys, `FG03..` timing and safety, `FG04..` security.
        /// `FG05..` are mistakes that show only outside of the file, at start. `FG06..` are mistakes of a command
        /// that queries a running process, maintains the store of a process, runs another command under a lock, or
        /// makes a policy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DiagnosticCode {
            $(#[doc = $meaning] $name,)*
        }

        impl DiagnosticCode {
            /// All codes, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The number of the code, such as `FG0203`.
            pub fn number(self) -> &'static str {
                match self { $(Self::$name => $number,)* }
            }

            /// The meaning of the code in one line.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    Syntax            "FG0101" Error "the file is not YAML"
    UnknownField      "FG0102" Error "a mapping has a field that does not exist"
    UnknownValue      "FG0103" Error "a field has a word that it does not know"
    DuplicateField    "FG0104" Error "a field is there twice in one mapping"
    MissingField      "FG0105" Error "a required field is missing"
    WrongShape        "FG0106" Error "a mapping, a list or a single value stands where another of them belongs"
    BadDuration       "FG0107" Error "a duration is not a number with a unit"
    BadSize           "FG0108" Error "a size is not a number with a unit"
    BadCount          "FG0109" Error "a count is not a whole number"
    OutOfRange        "FG0110" Error "a number is too small or too large"
    BadAddress        "FG0111" Error "a listener's address is not an IP address and a port"
    BadEndpoint       "FG0112" Error "an endpoint is not `http://host:port` or `https://host:port`"
    BadServer         "FG0113" Error "a ZooKeeper server is not `host:port`"
    BadRoot           "FG0114" Error "the ZooKeeper root is not an absolute, normalised path"
    BadName           "FG0115" Error "a name has characters that no name has"
    BadFieldName      "FG0116" Error "a header field name has characters that no field name has"
    Version           "FG0117" Error "the version of the file is not known"
    Listeners         "FG0118" Error "there is not exactly one listener"
    TooMuch           "FG0119" Error "the file is larger, deeper or more repetitive than any policy"
    OtherFile         "FG0120" Error "a guard's file is given to a gateway, or a gateway's policy to a guard"
    OnlyOne           "FG0121" Error "several fields are there of which only one can be meant"
    BadFile           "FG0122" Error "the path of a file is not absolute"
    BadUrl            "FG0123" Error "the address of a key set is not a URL with a host and a path"
    BadStatus         "FG0124" Error "a status cannot mean what it stands for"
    BadProbe          "FG0125" Error "a probe cannot find out what became of an operation"
    BadNetwork        "FG0126" Error "a network is not written as an address and a prefix length"
    BadHosts          "FG0127" Error "a list of hosts is empty, or has an entry that is not a host"
    BadHealthPath     "FG0131" Error "the path of a health check is malformed"
    MixedSchemes      "FG0132" Error "some endpoints of an upstream speak TLS, and others do not"
    BadServerName     "FG0133" Error "the name in a certificate is not the name of a server"
    BadUpgrade        "FG0134" Error "a connection cannot switch to this protocol"
    SameAddress       "FG0135" Error "two listeners have one address"
    UnsetVariable     "FG0136" Error "a variable of the environment is not set, and has no default"
    BadVariable       "FG0137" Error "the text between `${` and `}` names no variable of the environment"
    NotReached        "FG0138" Warning "other gateways cannot reach what is advertised to them"
    BadAdvertise      "FG0139" Error "the address for other gateways is not `host:port`"
    SameEndpoint      "FG0141" Warning "an upstream has one endpoint twice"
    SmallMemory       "FG0142" Warning "a body of the permitted size never finds room in memory"
    BadIdentity       "FG0143" Error "an identity is not in the form that ZooKeeper uses"
    BadSocketPath     "FG0144" Error "the address of a unix socket is not `unix:` and the whole path of its file"
    BadSocketMode     "FG0145" Error "with its mode nobody can reach a unix socket"
    UnixTls           "FG0146" Error "TLS is to be spoken on a unix socket"
    BadAlgorithm      "FG0148" Error "an algorithm is none of signatures by public keys"
    SameIssuer        "FG0149" Error "two entries of `jwt` have one issuer"
    BadOrigin         "FG0150" Error "an origin is none that browsers send, or more pages would read answers than is meant"

    BadPath           "FG0201" Error "a path template is malformed"
    BadKey            "FG0202" Error "a key template is malformed"
    UnboundVariable   "FG0203" Error "a key uses a variable that the route's path does not bind"
    UnknownSource     "FG0204" Error "a key takes a value from a source that does not exist"
    UnknownFilter     "FG0205" Error "a key uses a filter that does not exist"
    Unseparated       "FG0206" Error "two variables of a key are not separated, so two resources can get one key"
    UnknownUpstream   "FG0207" Error "an upstream is named that the file does not have"
    DuplicateRoute    "FG0208" Error "two routes have one name"
    Unreachable       "FG0209" Error "no request can reach a route, because earlier routes take them all"
    BadMethod         "FG0210" Error "a method is not an upper-case word"
    LockedStatus      "FG0211" Error "a status is not one of those that tell a client to come back"
    EmptyQueue        "FG0212" Error "a queue has no place"
    UnfitField        "FG0213" Error "a key uses a header field that cannot name a resource"
    KeyTooLong        "FG0214" Error "a key is too long whatever its values"
    KeyAndKeys        "FG0215" Error "a fence has both one key and a set of keys"
    TooManyKeys       "FG0216" Error "a set has more keys than a request may have"
    CachedSet         "FG0217" Error "a set of keys is to be kept between requests"
    NoEffect          "FG0218" Error "a field is set that has no effect beside another one"
    UnlikeHold        "FG0219" Error "two routes keep one key in unlike ways"
    UnlikeEnforce     "FG0220" Warning "one of two routes with one key only observes, so the other one is promised nothing"
    OnceStore         "FG0221" Error "`once.store` names a store that cannot remember these operations, or need not"
    OnceShared        "FG0222" Error "operations that happen at most once share their key"
    OneOperation      "FG0223" Error "all requests of a route would be one operation"
    BadCondition      "FG0224" Error "no request can meet the condition of a route, or nobody can tell whether a request meets it"
    OpenPath          "FG0225" Warning "a route lets writing requests pass without a lock on paths that another route fences"
    LooseRoute        "FG0226" Warning "an unfenced route takes other spellings of the paths that a fenced route takes"
    OpenUnmatched     "FG0227" Warning "requests without a route pass to a service that has routes with a fence or an `allow`"
    StreamedBody      "FG0228" Error "a body is to be streamed, but the whole body is needed before it is sent"
    OneScope          "FG0229" Error "operations of two upstreams would share their names"
    SourceConflicts   "FG0235" Warning "a value of a key may stand elsewhere in a request with another value, which the service may read"
    PartOfList        "FG0236" Error "a key is made of a part of a list, so the rest of that list would have no lock"
    ListUnfit         "FG0237" Error "a list stands where one value belongs, or an empty one may pass where a key is needed"
    SuffixTaken       "FG0238" Warning "a variable of a key takes a suffix that other routes write out, so one resource can get two keys"
    FreeText          "FG0239" Hint "a key takes any text, so two spellings of one resource can get two keys"
    ForeignPattern    "FG0240" Warning "a path has a sign of another pattern language, which means itself here"
    BadLockPath       "FG0241" Error "a lock path is not one that ZooKeeper has"
    LoosePath         "FG0242" Error "a lock path takes a value that the key does not have, so one key can have two locks"
    PathTaken         "FG0243" Error "a lock path lies where gateways or ZooKeeper itself keep something else"
    NotInLayout       "FG0244" Error "a fence asks for something that the locks of other programs do not have"
    UnlikeLayout      "FG0245" Error "two routes lock one key in two places, or one place in two layouts"
    NestedPath        "FG0246" Error "a lock path lies below another one"
    NotWithPermits    "FG0247" Error "a fence with `permits` asks for something that only one holder of a key can have"
    UnlikePermits     "FG0248" Error "two routes let unlike numbers of requests hold one key at once"
    PermitKey         "FG0249" Error "a key can be called as a permit of another key is"
    MigratesNothing   "FG0250" Error "a lock is migrated to itself"
    NotMigrated       "FG0251" Error "two locks cannot be taken together, so a fence cannot be migrated from one to the other"
    MixedPlans        "FG0254" Warning "the gateway serves beside gateways with other key templates, so one resource may have two locks"
    NestedUnsigned    "FG0255" Error "`nested: allow` needs signed tickets, and the policy signs none"
    GraphqlVariable   "FG0257" Warning "a key is made of a GraphQL variable, which the document beside it need not use"
    ClientChoice      "FG0258" Warning "a request passes without a lock for what a member of its body says, which its client chooses"
    TwoBodyFormats    "FG0259" Error "a route takes values from JSON and from a form, and no body is both"
    LeaseTimes        "FG0260" Error "the times of leases contradict each other"
    NoPrincipal       "FG0261" Error "`leases` has no principal, so nobody can hold a lease"
    SamePrincipal     "FG0262" Error "two principals have one name, one token or one certificate"
    BadKeyPattern     "FG0263" Error "a pattern of keys covers no key, or more keys than its reader expects"
    NoCertificates    "FG0264" Error "a principal is known by a certificate, but the listener asks for none"
    NoLease           "FG0265" Error "a route asks for leases that nobody can have"
    LeaseUnfit        "FG0266" Error "a fence has `lease` beside a field with which no request can run under a lease"
    LeaseElsewhere    "FG0267" Error "a lease and a route would take two different locks for one key"
    NoClientName      "FG0280" Error "the name of a client is taken, and its certificate is not verified or no name in it counts"
    NoIssuer          "FG0281" Error "a claim of a token is taken, and the policy verifies no tokens"
    BadClaim          "FG0282" Error "a claim is named that is not one value"
    BadRule           "FG0283" Error "an access rule allows nobody, or says nothing of a client"
    ChosenShare       "FG0284" Error "a share of a route is given to what a client chooses to be"

    ThinMargin        "FG0301" Error "the safety margin is smaller than a heartbeat and a tick"
    LockCanBeLost     "FG0302" Warning "the lock can be lost while a request is still allowed to run"
    ShortSession      "FG0303" Error "the session is too short to be proved alive twice"
    BeyondTenure      "FG0304" Error "a key is kept for longer than its tenure may last"
    ShortExecution    "FG0305" Error "an answer may come after its execution counts as over"
    EarlyEviction     "FG0306" Warning "a guard forgets watermarks of keys that may still be held or waited for"
    Observed          "FG0307" Warning "`observe`: requests that should be refused pass, so nothing is promised"
    BeyondTicks       "FG0308" Warning "ZooKeeper grants other session timeouts than the one asked for"
    NotDirect         "FG0309" Warning "a guard's refusals prove nothing, because `direct` is not written"
    HopEndsExecution  "FG0310" Warning "an answer that a proxy can make counts as the end of an execution"
    ShortDrain        "FG0314" Warning "a process that stops gives up requests that may still be answered"
    UncertainNo       "FG0318" Warning "the answer *not done* of a probe decides nothing"
    ReadersOvertaken  "FG0340" Warning "programs with a kazoo `Lock` do not wait for those who share the key"
    DelayTooShort     "FG0345" Error "a request may take longer than the delay that is to outlast it"
    DelayShared       "FG0346" Error "a key that others share has a delay, which knows one holder only"
    DelayForward      "FG0347" Error "`forward: holder` stands beside a delay, which the holder may be waiting for"
    UnlikeDelay       "FG0348" Error "routes lock one key and do not agree about its delay"

    OpenAdmin         "FG0401" Error "the admin listener is open to the network without authentication"
    TakenField        "FG0402" Error "a token field has the name of a field with another meaning"
    OneFieldForTwo    "FG0403" Error "two fields that only the gateway writes have one name"
    NoTickets         "FG0404" Warning "a guard asks for no tickets, so whoever reaches it can make up a token"
    PlainToken        "FG0405" Warning "the admin token crosses the network as plain text"
    PlainPeer         "FG0406" Warning "what gateways send on to each other crosses the network as plain text"
    CredentialKey     "FG0407" Error "a key is made of a credential"
    PlainDigest       "FG0408" Warning "the password for ZooKeeper crosses the network as plain text"
    PlainLease        "FG0409" Warning "the tokens of principals and the secrets of leases cross the network as plain text"
    OpenFilter        "FG0410" Warning "a filter is open to the network, so whoever reaches it can make up a moment"
    ChosenPrincipal   "FG0415" Warning "operations belong to whoever a client says it is, although it is verified who that is"
    PlainKeySet       "FG0416" Warning "the keys of an issuer of tokens cross the network as plain text"
    MixedIssuers      "FG0417" Error "a claim of several issuers is taken, and two of them may give one name to two clients"
    PlainClientName   "FG0418" Warning "names of clients come from other gateways as plain text, so whoever has read a pass can be any client"
    OpenRule          "FG0419" Warning "a route lets everybody pass on paths that another route allows to some"

    SessionNegotiated "FG0501" Warning "ZooKeeper negotiated another session timeout than the one asked for"
    RootOpen          "FG0502" Warning "everybody who reaches ZooKeeper may write the root"
    OtherEnsemble     "FG0503" Error "ZooKeeper was wiped or rolled back, or is another one than before"
    GuardImpatient    "FG0504" Error "a gateway gives up an answer before its guard would have to give it"
    NoEnsemble        "FG0505" Error "ZooKeeper does not answer"
    NoInstallation    "FG0506" Error "the installation was not made yet below the root"
    NoEndpoint        "FG0507" Error "an endpoint cannot be reached"
    EndpointTls       "FG0508" Error "TLS with an endpoint fails"
    NoGuard           "FG0509" Error "there is no guard where one should be, or not the right one"
    ListenerTls       "FG0510" Error "a listener cannot speak TLS with its files"
    Expired           "FG0511" Warning "a certificate has expired"
    FileUnusable      "FG0512" Error "a file that is named cannot be used"
    ExpiresSoon       "FG0513" Warning "a certificate expires within two weeks"
    FolderUnusable    "FG0514" Error "a folder cannot be written"
    PlansDiffer       "FG0515" Warning "gateways of one installation lock other keys"
    NoTraces          "FG0516" Error "this build sends no traces"
    PeerSilent        "FG0517" Warning "another gateway cannot be reached where it says that it can"
    StateUnusable     "FG0519" Error "what is in `state_dir` cannot be used"
    UnlikeServers     "FG0520" Warning "the servers of ZooKeeper grant different session timeouts"
    EnsembleTls       "FG0521" Error "TLS with ZooKeeper fails"
    OpenNodes         "FG0522" Warning "somebody who is not in `identities` may write nodes below the root"
    NotZooKeeper      "FG0523" Error "a server speaks ZooKeeper's protocol, and is not ZooKeeper"
    NotLetIn          "FG0524" Error "ZooKeeper does not let this identity in"
    SharedService     "FG0525" Warning "two upstreams lead to one service under two names"
    SocketUnusable    "FG0526" Error "a unix socket cannot be listened on"
    AddressUnusable   "FG0527" Error "an address cannot be listened on"
    PlaceTaken        "FG0528" Warning "at the place of a lock stands a node that is no lock"
    NoRoom            "FG0529" Warning "a disk on which the process has to write is nearly full"
    NoFile            "FG0530" Error "the file cannot be read"
    NoStore           "FG0540" Error "a database cannot be the store of a guard"
    StoreMoved        "FG0545" Error "the file of a guard's store was moved into a database"
    StoreInUse        "FG0546" Error "another process has the file of a guard's store open"
    ConfigMismatch    "FG0550" Warning "an older gateway locks the same resource in another way"
    PlanUnreadable    "FG0551" Warning "the plan that another gateway has published cannot be read"
    ThreadHangs       "FG0552" Error "a thread of the process does not turn"
    NeedsRestart      "FG0553" Error "a reload would change fields that can only change with a restart"
    ClocksDiffer      "FG0554" Warning "the clock of a guard or of ZooKeeper differs from that of this machine"

    AdminSilent       "FG0601" Error "no admin listener of the right process answers there"
    AdminCloses       "FG0602" Error "the admin listener refuses the command"
    BreakNotMeant     "FG0603" Error "a lock or a lease is not broken without `--yes`"
    StillRunning      "FG0604" Error "a process that was to end is still running"
    BackupBroken      "FG0611" Error "a file is not the whole backup of a guard's store"
    BackupUnwritten   "FG0612" Error "a backup could not be written"
    BackupElsewhere   "FG0613" Error "the store of a guard is a database, which has its own backups"
    StoreInTheWay     "FG0614" Error "a store cannot be made where it belongs"
    FloorTooLow       "FG0615" Error "no floor is known above every token that was given out"
    LockHeld          "FG0621" Error "a command was not run, because another holds its lock"
    LockLost          "FG0622" Error "a lock was lost while its command ran"
    LockNotHad        "FG0623" Error "a command was not run, because its lock could not be had"
    GraceTooLong      "FG0624" Error "the grace for a command leaves no time for renewals"
    NoSuchCommand     "FG0625" Error "a command cannot be started"
    KeyMisspelled     "FG0626" Error "no request has a key that is written so"
    OpenApiUnreadable "FG0631" Error "the description of an interface is neither JSON nor YAML, or is too large"
    NotOpenApi        "FG0632" Error "a file is no description of an interface in OpenAPI 3.0 or 3.1"
}

impl fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Hint => "hint",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code has a number of its own, in ascending order.
    #[test]
    fn codes_have_unique_ascending_numbers() {
        assert!(DiagnosticCode::ALL.is_sorted_by(|one, next| one.number() < next.number()));
        assert!(DiagnosticCode::ALL.iter().all(|code| code.number().len() == 6));
    }
}
