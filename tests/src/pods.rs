//! Runs the resources of a rendered chart without a cluster. A pod is a process with a loopback address of its own,
//! volumes are folders, and services are host names that the processes see.

mod cluster_address;
mod mounts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Deref,
    process::Output,
    time::{Duration, Instant},
};

use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy, scratch};
use serde_json::Value;
use tempfile::TempDir;

use self::mounts::VolumeMounts;
use crate::{
    client::TestRequest,
    gateway::command_with_env,
    hosts::HostsFile,
    process::{Failpoints, TestProcess, binary},
    prometheus::deploy,
};

/// Stands in for a cluster: keeps the applied resources, and all that outlives a pod.
pub struct FakeCluster {
    resources: Vec<Value>,
    home: TempDir,
    hosts: HostsFile,
    /// The second and third number of this test's addresses; the first is 127.
    network: [u8; 2],
    /// The addresses of pods and services by their names. A name keeps its address.
    addresses: BTreeMap<String, Ipv4Addr>,
    /// The names of the pods that are ready.
    ready: BTreeSet<String>,
    /// The proxies that listen at the addresses of services, by the names of the services.
    balancers: BTreeMap<String, FaultProxy>,
}

/// A pod with one container, as a running process.
pub struct PodProcess {
    name: String,
    process: TestProcess,
    container: Value,
    address: Ipv4Addr,
}

impl FakeCluster {
    /// A cluster without resources.
    ///
    /// # Panics
    /// If the kernel has no randomness.
    pub fn empty() -> Self {
        let mut network = [0; 2];
        getrandom::fill(&mut network).expect("the kernel has randomness");
        // An odd number is never 0: other tests and processes use 127.0.
        network[0] |= 1;
        let home = scratch::temp_dir();
        let hosts = HostsFile::none();
        let addresses = BTreeMap::new();
        let ready = BTreeSet::new();
        let balancers = BTreeMap::new();
        Self { resources: Vec::new(), home, hosts, network, addresses, ready, balancers }
    }

    /// Adds these resources. They replace resources of the same kind and name.
    pub fn apply(&mut self, resources: Vec<Value>) {
        let same = |one: &Value, other: &Value| {
            one["kind"] == other["kind"] && one["metadata"]["name"] == other["metadata"]["name"]
        };
        self.resources.retain(|old| !resources.iter().any(|new| same(old, new)));
        self.resources.extend(resources);
    }

    /// The resource of this kind and name.
    ///
    /// # Panics
    /// If there is no such resource.
    pub fn resource(&self, kind: &str, name: &str) -> &Value {
        let named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        self.resources.iter().find(named).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// Starts the pod with this number of a StatefulSet or Deployment, and waits until it listens.
    ///
    /// # Panics
    /// If the pod does not listen, or mounts a volume that does not exist.
    pub async fn start(&mut self, kind: &str, workload: &str, number: u8) -> PodProcess {
        let name = format!("{workload}-{number}");
        let set = self.resource(kind, workload).clone();
        let replicas = set["spec"]["replicas"].as_u64().expect("a number");
        assert!(u64::from(number) < replicas, "{workload} has {replicas} pods");
        let address = self.address(&name);
        self.update_services().await;
        let mounts = self.mounts(&name, &set["spec"]);
        let container = set["spec"]["template"]["spec"]["containers"][0].clone();
        let arguments = entrypoint()
            .into_iter()
            .chain(words(&container["args"]))
            .map(|word| mounts.replace_mount_paths(&word));
        let mut before = self.hosts.command();
        before.push("env".to_owned());
        before.extend(environment(&container, address).iter().map(|(name, value)| format!("{name}={value}")));
        let listener = if container["name"] == "guard" { "guard" } else { "public" };
        let started =
            TestProcess::start(&binary(), &Failpoints::default(), before, listener, arguments.collect())
                .await;
        let process = started.unwrap_or_else(|error| panic!("{name}: {error}"));
        PodProcess { name, process, container, address }
    }

    /// Starts a pod like [`Self::start`], waits until it has passed each of its probes, and leads services to it.
    ///
    /// # Panics
    /// If the pod does not pass a probe in the time that a cluster would give it.
    pub async fn start_ready(&mut self, kind: &str, workload: &str, number: u8) -> PodProcess {
        let pod = self.start(kind, workload, number).await;
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            pod.check_probe(probe).await;
        }
        self.ready.insert(pod.name.clone());
        self.update_services().await;
        pod
    }

    /// Ends a pod as a cluster does: services stop to lead to the pod, and then it gets SIGTERM.
    ///
    /// # Panics
    /// If the pod does not end with success.
    pub async fn end(&mut self, pod: PodProcess) {
        self.ready.remove(&pod.name);
        self.update_services().await;
        pod.signal(Signal::TERM);
        let status = pod.exit().await;
        assert!(status.success(), "{status}: {}", pod.log());
    }

    /// Runs the command of a job to its end.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub async fn run_job(&mut self, name: &str) -> Output {
        let job = self.resource("Job", name).clone();
        let arguments = words(&job["spec"]["template"]["spec"]["containers"][0]["args"]);
        self.run(name, &job["spec"], arguments).await
    }

    /// Runs a command with the files of a workload's first pod, as `kubectl exec` does.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub async fn exec(&mut self, kind: &str, workload: &str, arguments: &[&str]) -> Output {
        let set = self.resource(kind, workload).clone();
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        self.run(&format!("{workload}-0"), &set["spec"], arguments).await
    }

    async fn run(&mut self, pod: &str, spec: &Value, arguments: Vec<String>) -> Output {
        let address = self.address(pod);
        let mounts = self.mounts(pod, spec);
        let arguments: Vec<String> = arguments.iter().map(|word| mounts.replace_mount_paths(word)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let environment = environment(&spec["template"]["spec"]["containers"][0], address);
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        command_with_env(&environment, &arguments).await.expect("the binary starts")
    }

    /// The names of the files in the claimed volume of a pod. They outlive the pod.
    pub fn claimed_files(&self, claim: &str, pod: &str) -> Vec<String> {
        let folder = self.home.path().join("claims").join(format!("{claim}-{pod}"));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn address(&mut self, pod: &str) -> Ipv4Addr {
        let [a, b] = self.network;
        let next = u8::try_from(self.addresses.len() + 1).expect("few pods");
        *self.addresses.entry(pod.to_owned()).or_insert(Ipv4Addr::new(127, a, b, next))
    }

    fn mounts(&self, pod: &str, spec: &Value) -> VolumeMounts {
        let mut mounts = VolumeMounts::at(self.addresses[pod]);
        let of_pod = &spec["template"]["spec"];
        for mount in of_pod["containers"][0]["volumeMounts"].as_array().expect("mounts") {
            let name = mount["name"].as_str().expect("a name");
            let mut volumes = of_pod["volumes"].as_array().into_iter().flatten();
            let path = mount["mountPath"].as_str().expect("a path");
            match volumes.find(|volume| volume["name"] == name) {
                Some(volume) => mounts.add(path, self.home.path().join(pod).join(name), self.files(volume)),
                None => {
                    let mut claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
                    assert!(
                        claims.any(|claim| claim["metadata"]["name"] == name),
                        "nothing to mount for {name}"
                    );
                    mounts.add(
                        path,
                        self.home.path().join("claims").join(format!("{name}-{pod}")),
                        Vec::new(),
                    );
                }
            }
        }
        mounts.write();
        mounts
    }

    /// Name, content and mode of each file of a volume.
    fn files(&self, volume: &Value) -> Vec<(String, Vec<u8>, u32)> {
        if let Some(name) = volume["configMap"]["name"].as_str() {
            return mounts::texts(&self.resource("ConfigMap", name)["data"]);
        }
        let name = volume["secret"]["secretName"].as_str().expect("a secret, a ConfigMap or a claim");
        mounts::secrets(&self.resource("Secret", name)["data"], &volume["secret"]["defaultMode"])
    }
}

impl PodProcess {
    /// Sends a probe until it succeeds, or until a cluster would end the container.
    ///
    /// # Panics
    /// If the probe does not succeed in that time.
    pub async fn check_probe(&self, probe: &str) {
        let probe = &self.container[probe];
        let asked = &probe["httpGet"];
        let path = asked["path"].as_str().unwrap_or_else(|| panic!("no path: {probe}"));
        let at = SocketAddr::new(IpAddr::V4(self.address), port_named(&self.container, &asked["port"]));
        let seconds = probe["periodSeconds"].as_u64().expect("a number");
        let times = probe["failureThreshold"].as_u64().unwrap_or(3).max(10);
        let end = Instant::now() + Duration::from_secs(seconds * times);
        loop {
            let answer = TestRequest::get(path).send_to(at).await;
            if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(Instant::now() < end, "{path}: {answer:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Deref for PodProcess {
    type Target = TestProcess;

    fn deref(&self) -> &TestProcess {
        &self.process
    }
}

/// The words that the image puts before the arguments of a container.
fn entrypoint() -> Vec<String> {
    let dockerfile = fs::read_to_string(deploy().join("docker/Dockerfile")).expect("readable");
    let line = dockerfile.lines().filter_map(|line| line.strip_prefix("ENTRYPOINT ")).next_back();
    let program: Vec<String> = serde_json::from_str(line.expect("an entry point")).expect("a list");
    assert_eq!(program[0], "/usr/bin/fencegate");
    program[1..].to_vec()
}

fn words(list: &Value) -> Vec<String> {
    let words = list.as_array().expect("a list").iter();
    words.map(|word| word.as_str().expect("a word").to_owned()).collect()
}

fn environment(container: &Value, address: Ipv4Addr) -> Vec<(String, String)> {
    let variables = container["env"].as_array().into_iter().flatten();
    let named = variables.map(|variable| {
        let from = &variable["valueFrom"]["fieldRef"]["fieldPath"];
        assert_eq!(from, "status.podIP", "{variable}");
        (variable["name"].as_str().expect("a name").to_owned(), address.to_string())
    });
    named.collect()
}

/// The number of the container's port with this name.
fn port_named(container: &Value, name: &Value) -> u16 {
    let ports = container["ports"].as_array().expect("ports");
    let port = ports.iter().find(|port| &port["name"] == name).unwrap_or_else(|| panic!("no port {name}"));
    port["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port")
}
