//! Network namespaces for processes under test, all on one bridge. The bridge can drop packets silently, in both
//! directions or in one.
//!
//! The bridge has a namespace of its own. The machine gets one interface to the bridge, with a private address, so
//! that processes in the namespaces reach listeners of the machine. Namespaces and interfaces are removed when the
//! [`NetworkNamespaces`] value is dropped, and also when the test is killed.

mod removal;
#[cfg(test)]
mod tests;

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::fd::AsFd as _,
    process::{self, Command},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::task::spawn_blocking;

use self::removal::NamespaceCleanup;

pub struct NetworkNamespaces {
    /// The first part of the names of all namespaces. It contains the id of this process.
    prefix: String,
    /// The first three bytes of all addresses.
    net: [u8; 3],
    _removal: NamespaceCleanup,
}

/// A script that makes the namespace of the bridge, and the interface of the machine with its address.
const HUB: &str = r#"
    ip netns add "$1"
    ip -n "$1" link add bridge type bridge
    ip -n "$1" link set bridge up
    ip link add "$2" type veth peer name machine netns "$1"
    ip -n "$1" link set machine master bridge up
    ip addr add "$3/24" dev "$2"
    ip link set "$2" up
    ip netns exec "$1" nft add table bridge faults
    ip netns exec "$1" nft add chain bridge faults way '{ type filter hook forward priority 0; }'
"#;

/// A script that makes the namespace of a member, connects that namespace to the bridge, and gives it an address.
const MEMBER: &str = r#"
    ip netns add "$2"
    ip -n "$1" link add "$3" type veth peer name eth0 netns "$2"
    ip -n "$1" link set "$3" master bridge up
    ip -n "$2" addr add "$4/24" dev eth0
    ip -n "$2" link set eth0 up
    ip -n "$2" link set lo up
"#;

/// A script that connects from a namespace to an address and a port.
const REACHES: &str = r#"ip netns exec "$1" timeout 5 bash -c '</dev/tcp/$0/$1' "$2" "$3""#;

impl NetworkNamespaces {
    /// Makes namespaces for this number of members. Members reach each other and the machine.
    ///
    /// # Errors
    /// Returns the reason if this machine cannot make namespaces: only root may make them, the commands `ip` and
    /// `nft` are needed, and the kernel must support bridges.
    pub async fn new(members: usize) -> Result<Self, String> {
        spawn_blocking(move || Self::make(members)).await.expect("no panic")
    }

    fn make(members: usize) -> Result<Self, String> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("only root can make network namespaces".to_owned());
        }
        removal::remove_stale_namespaces();
        let number = format!("{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let prefix = format!("{}{number}", removal::OURS);
        let names: Vec<String> = (0..members)
            .map(|member| namespace_name(&prefix, member))
            .chain([bridge_name(&prefix)])
            .collect();
        let made = Self { net: unused_net()?, _removal: NamespaceCleanup::start(&names), prefix };
        // The kernel allows at most fifteen letters in the name of an interface.
        shell(HUB, &[&bridge_name(&made.prefix), &format!("fg{number}"), &made.machine().to_string()])?;
        for member in 0..members {
            let name = namespace_name(&made.prefix, member);
            let address = made.address(member).to_string();
            shell(MEMBER, &[&bridge_name(&made.prefix), &name, &bridge_end(member), &address])?;
            made.reaches(&name)?;
        }
        Ok(made)
    }

    /// Checks that a member reaches the machine: a firewall rule of the machine may drop its packets.
    fn reaches(&self, name: &str) -> Result<(), String> {
        let listener = TcpListener::bind((self.machine(), 0)).map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let reached = shell(REACHES, &[name, &self.machine().to_string(), &port.to_string()]);
        reached.map(drop).map_err(|error| format!("a namespace does not reach its machine: {error}"))
    }

    /// The machine's address on the bridge, at which members reach listeners of the machine.
    pub fn machine(&self) -> Ipv4Addr {
        self.host(1)
    }

    pub fn address(&self, member: usize) -> Ipv4Addr {
        self.host(11 + u8::try_from(member).expect("a few"))
    }

    fn host(&self, last: u8) -> Ipv4Addr {
        let [one, two, three] = self.net;
        Ipv4Addr::new(one, two, three, last)
    }

    /// The first words of a command line that starts a process in the namespace of a member.
    pub fn command(&self, member: usize) -> Vec<String> {
        let entered = format!("--net=/run/netns/{}", namespace_name(&self.prefix, member));
        vec!["nsenter".to_owned(), entered, "--".to_owned()]
    }

    /// Listens at the address of a member. Connections from the machine to this listener pass the bridge, which can
    /// drop their packets.
    ///
    /// # Panics
    /// If the kernel does not allow this process to enter the namespace.
    pub fn listener(&self, member: usize) -> TcpListener {
        let file = format!("/run/netns/{}", namespace_name(&self.prefix, member));
        let address = self.address(member);
        // A socket belongs to the namespace in which it was made. The thread that makes it stays in that namespace,
        // so it is a thread of its own.
        let bound = thread::spawn(move || {
            let namespace = fs::File::open(file)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpListener::bind((address, 0))
        });
        bound.join().expect("no panic").expect("a namespace of ours")
    }

    /// Drops all packets that a member sends, until [`Self::restore`].
    pub fn drop_outgoing(&self, member: usize) {
        self.add_drop_rule(&["iifname", &bridge_end(member)]);
    }

    /// Drops all packets to a member, until [`Self::restore`].
    pub fn drop_incoming(&self, member: usize) {
        self.add_drop_rule(&["oifname", &bridge_end(member)]);
    }

    /// Drops all packets that a member sends to these ports, until [`Self::restore`].
    pub fn drop_outgoing_to(&self, member: usize, ports: &[u16]) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        self.add_drop_rule(&[
            "iifname",
            &bridge_end(member),
            "tcp",
            "dport",
            &format!("{{ {} }}", ports.join(", ")),
        ]);
    }

    /// Lets all packets pass again. The sender's kernel repeats lost packets, so the connections go on.
    pub fn restore(&self) {
        self.run_bridge_nft(&["flush", "chain", "bridge", "faults", "way"]);
    }

    /// Takes the interface of a member down, as if its cable were pulled. The member's kernel notices this.
    pub fn unplug(&self, member: usize) {
        self.set_link_state(member, "down");
    }

    pub fn plug_in(&self, member: usize) {
        self.set_link_state(member, "up");
    }

    fn set_link_state(&self, member: usize, state: &str) {
        let name = namespace_name(&self.prefix, member);
        shell(r#"ip -n "$1" link set eth0 "$2""#, &[&name, state]).expect("an interface of ours");
    }

    fn add_drop_rule(&self, which: &[&str]) {
        self.run_bridge_nft(&[&["add", "rule", "bridge", "faults", "way"], which, &["drop"]].concat());
    }

    /// Runs `nft` in the namespace of the bridge.
    ///
    /// # Panics
    /// If `nft` fails.
    fn run_bridge_nft(&self, words: &[&str]) {
        let hub = bridge_name(&self.prefix);
        let words = [&[hub.as_str()], words].concat();
        shell(r#"hub=$1; shift; ip netns exec "$hub" nft "$@""#, &words).expect("a bridge of ours");
    }
}

fn bridge_name(prefix: &str) -> String {
    format!("{prefix}-hub")
}

fn namespace_name(prefix: &str, member: usize) -> String {
    format!("{prefix}-{member}")
}

/// The name of a member's interface at the bridge.
fn bridge_end(member: usize) -> String {
    format!("member{member}")
}

/// A part of 10.0.0.0/8 for which the machine has no route but its default route.
fn unused_net() -> Result<[u8; 3], String> {
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let [two, three] = random;
        let ways = shell(
            r#"ip -4 route show match "$1" && ip -4 route show root "$1""#,
            &[&format!("10.{two}.{three}.0/24")],
        )?;
        if ways.lines().all(|way| way.starts_with("default")) {
            return Ok([10, two, three]);
        }
    }
    Err("no part of 10.0.0.0/8 is unused".to_owned())
}

/// Runs a script. Returns its output, or its error output if the script fails.
fn shell(script: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("sh").args(["-euc", script, "sh"]).args(arguments).output();
    let output = output.map_err(|error| format!("sh: {error}"))?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
