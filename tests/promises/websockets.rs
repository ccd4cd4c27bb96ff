//! WebSocket clients and a WebSocket server of other projects communicate through the gateway.
//!
//! The clients are written in Python and JavaScript, and the server in Python.

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::child::ChildProcess;
use fencegate_tests::{gateway::Gateway, site::TestSite};
use serde_json::json;
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::clients::{node_with_package, python_with_package, run, text};

/// A server that first sends the fencing fields of its request, and then each message back.
const SERVER: &str = r#"
import asyncio
from websockets.asyncio.server import serve

async def echo(socket):
    await socket.send(socket.request.headers.get("Fencing-Token", "none"))
    async for message in socket:
        await socket.send(message)

async def main():
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print("port", server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().create_future()

asyncio.run(main())
"#;

/// A client that sends texts and bytes of many sizes, also some that are larger than any buffer on the way.
const PYTHON: &str = r#"
import asyncio, os, sys
from websockets.asyncio.client import connect

async def main():
    async with connect(sys.argv[1], max_size=None) as socket:
        token = await socket.recv()
        for size in (0, 1, 125, 126, 65536, 1 << 20):
            data = os.urandom(size)
            await socket.send(data)
            assert await socket.recv() == data, size
        await socket.send("grüezi")
        assert await socket.recv() == "grüezi"
    print("echoed", token)

asyncio.run(main())
"#;

const NODE: &str = r#"
const { WebSocket } = require("ws");
const socket = new WebSocket(process.argv[1]);
const sizes = [0, 1, 125, 126, 65536, 1 << 20];
let token = null, sent = null;
const next = () => {
    if (sizes.length === 0) return socket.close(1000);
    sent = require("crypto").randomBytes(sizes.shift());
    socket.send(sent);
};
socket.on("message", (data) => {
    if (token === null) token = data.toString();
    else if (!sent.equals(data)) throw new Error("not what was sent");
    next();
});
socket.on("close", (code) => console.log("echoed", token, code));
"#;

async fn server(python: &str) -> (ChildProcess, SocketAddr) {
    let child = ChildProcess::spawn(python, ["-c", SERVER]).expect("setpriv");
    let (child, line) = spawn_blocking(move || {
        let line = child.wait_line(|line| line.starts_with("port "), Duration::from_secs(30));
        (child, line.map_err(|_| ()))
    })
    .await
    .expect("no panic");
    let line = line.unwrap_or_else(|()| panic!("no server: {}", child.log()));
    let port = line.trim_start_matches("port ").trim().parse().expect("a port");
    (child, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// WebSocket clients in Python and JavaScript are echoed on fenced and unfenced routes.
#[tokio::test]
async fn foreign_websocket_clients_are_echoed() {
    static VENV: OnceCell<String> = OnceCell::const_new();
    static MODULES: OnceCell<String> = OnceCell::const_new();
    let python = VENV.get_or_init(|| python_with_package("websockets", "websockets==15.0.1")).await;
    let modules = MODULES.get_or_init(|| node_with_package("ws", "ws@8.18.3")).await;
    let (_server, address) = server(python).await;
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/endpoints", json!([format!("http://{address}")]))
        .with("/routes/0/match/methods", json!(["GET", "POST"]))
        .with("/routes/0/upgrade", json!(["websocket"]))
        .with("/routes/1/upgrade", json!(["websocket"]));
    let gateway = Gateway::start(&policy).await;
    for (path, token) in [("feed", "echoed none"), ("pay/7", "echoed v1-")] {
        let url = format!("ws://{}/{path}", gateway.public);
        let said = text(&run(python, &["-c", PYTHON, &url]).await);
        assert!(said.starts_with(token), "python, {path}: {said}");
        let said = text(&run("env", &[modules, "node", "-e", NODE, &url]).await);
        assert!(said.starts_with(token) && said.trim().ends_with("1000"), "node, {path}: {said}");
    }
    // Each client has released its key.
    gateway.wait_gauge("fencegate_locks_held", 0.0).await;
}
