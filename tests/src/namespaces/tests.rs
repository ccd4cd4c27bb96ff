//! Tests of the namespaces: packets pass or are dropped, and everything is removed. On a machine without namespaces
//! the tests check nothing.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{NetworkNamespaces, namespace_name, removal, shell};

/// Sends each line of its input over one connection, and prints each line that arrives.
const SPEAKS: &str = r#"exec 3<>"/dev/tcp/$0/$1"; cat <&3 & while read -r line; do echo "$line" >&3; done"#;

const SOON: Duration = Duration::from_secs(5);
const NEVER: Duration = Duration::from_millis(500);

/// A process in the namespace of the first member, and the machine's end of its connection.
struct NamespacePair {
    member: Child,
    machine: TcpStream,
}

impl NamespacePair {
    fn of(namespaces: &NetworkNamespaces) -> Self {
        let listener = TcpListener::bind((namespaces.machine(), 0)).expect("an address of ours");
        let address = listener.local_addr().expect("bound");
        let mut command = Command::new(&namespaces.command(0)[0]);
        command.args(&namespaces.command(0)[1..]).args(["timeout", "30", "bash", "-c", SPEAKS]);
        command.args([address.ip().to_string(), address.port().to_string()]);
        let member = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("nsenter");
        let (machine, from) = listener.accept().expect("a connection");
        assert_eq!(from.ip(), namespaces.address(0));
        Self { member, machine }
    }

    fn send_line(&mut self, line: &str) {
        let mouth = self.member.stdin.as_mut().expect("piped");
        writeln!(mouth, "{line}").expect("it listens");
    }

    /// The next line that the process in the namespace has sent.
    fn receive_line(&self, within: Duration) -> Option<String> {
        self.machine.set_read_timeout(Some(within)).expect("more than nothing");
        let mut line = String::new();
        BufReader::new(&self.machine).read_line(&mut line).ok()?;
        Some(line)
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        drop(self.member.kill());
        drop(self.member.wait());
    }
}

async fn one() -> Option<NetworkNamespaces> {
    match NetworkNamespaces::new(1).await {
        Ok(namespaces) => Some(namespaces),
        Err(error) => {
            println!("no network namespaces here: {error}");
            None
        }
    }
}

/// Data sent while packets are dropped arrives after the restore, over the same connection.
#[tokio::test]
async fn dropped_packets_arrive_after_restore() {
    let Some(namespaces) = one().await else { return };
    let mut pair = NamespacePair::of(&namespaces);
    pair.send_line("one");
    assert_eq!(pair.receive_line(SOON).as_deref(), Some("one\n"));
    for cut in [
        |namespaces: &NetworkNamespaces, _| namespaces.drop_outgoing(0),
        |namespaces: &NetworkNamespaces, port| namespaces.drop_outgoing_to(0, &[port]),
    ] {
        cut(&namespaces, pair.machine.local_addr().expect("connected").port());
        pair.send_line("two");
        assert_eq!(pair.receive_line(NEVER), None);
        namespaces.restore();
        assert_eq!(pair.receive_line(SOON).as_deref(), Some("two\n"));
    }
    namespaces.drop_outgoing_to(0, &[1]);
    pair.send_line("three");
    assert_eq!(pair.receive_line(SOON).as_deref(), Some("three\n"), "another port");
}

/// Packets of the two directions are dropped separately, and an unplugged interface stays down until it is plugged
/// in.
#[tokio::test]
async fn directions_are_dropped_separately() {
    let Some(namespaces) = one().await else { return };
    let mut pair = NamespacePair::of(&namespaces);
    let mut heard = BufReader::new(pair.member.stdout.take().expect("piped"));
    namespaces.drop_incoming(0);
    pair.send_line("out");
    assert_eq!(pair.receive_line(SOON).as_deref(), Some("out\n"));
    namespaces.restore();
    namespaces.drop_outgoing(0);
    pair.machine.write_all(b"in\n").expect("connected");
    let mut line = String::new();
    heard.read_line(&mut line).expect("it prints");
    assert_eq!(line, "in\n");
    pair.send_line("out");
    assert_eq!(pair.receive_line(NEVER), None);
    namespaces.unplug(0);
    namespaces.restore();
    assert_eq!(pair.receive_line(NEVER), None);
    namespaces.plug_in(0);
    assert_eq!(pair.receive_line(SOON).as_deref(), Some("out\n"));
}

/// Dropping the value removes its namespaces and interfaces. A sweep removes the namespaces of dead processes, and
/// no others.
#[tokio::test]
async fn namespaces_are_removed_on_drop() {
    let Some(namespaces) = one().await else { return };
    let file = |name: &str| Path::new("/run/netns").join(name);
    let prefix = namespaces.prefix.clone();
    let net = namespaces.machine().to_string();
    assert!(file(&namespace_name(&prefix, 0)).exists() && file(&super::bridge_name(&prefix)).exists());
    drop(namespaces);
    assert!(!file(&namespace_name(&prefix, 0)).exists() && !file(&super::bridge_name(&prefix)).exists());
    // The kernel removes interfaces a little later than their namespaces.
    let gone = || !shell("ip -4 addr", &[]).expect("ip").contains(&net);
    assert!(
        (0..500).any(|_| gone() || {
            std::thread::sleep(SOON / 500);
            false
        }),
        "{net} is still there"
    );
    // No process has this id: it is above the largest id of the kernel.
    let left = format!("{}4194305-0-hub", removal::OURS);
    let ours = format!("{prefix}-other");
    for name in [&left, &ours] {
        shell(r#"ip netns add "$1""#, &[name]).expect("root");
    }
    removal::remove_stale_namespaces();
    let there = [&left, &ours].map(|name| file(name).exists());
    shell(r#"ip netns del "$1""#, &[&ours]).expect("ours");
    assert_eq!(there, [false, true]);
}
