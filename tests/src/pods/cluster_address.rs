//! Services: the names that pods see, and the ready pods behind each name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fencegate_testkit::fault_proxy::FaultProxy;
use serde_json::Value;

use super::{FakeCluster, port_named};

impl FakeCluster {
    /// The address at which the pod with this number serves a port of a service.
    ///
    /// # Panics
    /// If no workload has the labels of the service, if the port does not exist, or if the pod was never started.
    pub fn service_address(&self, service: &str, port: u16, number: u8) -> SocketAddr {
        let spec = &self.resource("Service", service)["spec"];
        let ports = spec["ports"].as_array().expect("ports");
        let target = &ports.iter().find(|one| one["port"] == port).expect("this port")["targetPort"];
        let set = self.matching_workload(&spec["selector"]).expect("pods");
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        let pod = format!("{}-{number}", set["metadata"]["name"].as_str().expect("a name"));
        SocketAddr::new(IpAddr::V4(self.addresses[&pod]), port_named(container, target))
    }

    /// The StatefulSet or Deployment whose pods have these labels.
    fn matching_workload(&self, selector: &Value) -> Option<&Value> {
        let wanted = selector.as_object().expect("labels");
        let has = |set: &Value| {
            let labels = &set["spec"]["template"]["metadata"]["labels"];
            wanted.iter().all(|(name, value)| &labels[name] == value)
        };
        let mut sets = self.resources.iter().filter(|one| one["spec"]["replicas"].is_u64());
        sets.find(|set| has(set))
    }

    /// Updates the names of all services. The name of a headless service means the addresses of its ready pods. The
    /// name of any other service means an address of its own, whose connections go to ready pods.
    pub(super) async fn update_services(&mut self) {
        let mut names = Vec::new();
        let services: Vec<Value> =
            self.resources.iter().filter(|one| one["kind"] == "Service").cloned().collect();
        for service in &services {
            let Some(set) = self.matching_workload(&service["spec"]["selector"]) else { continue };
            let (set, container) =
                (set["metadata"]["name"].clone(), set["spec"]["template"]["spec"]["containers"][0].clone());
            let of = format!("{}-", set.as_str().expect("a name"));
            let is_own =
                |pod: &&String| pod.strip_prefix(&of).is_some_and(|number| number.parse::<u8>().is_ok());
            let pods: Vec<Ipv4Addr> =
                self.ready.iter().filter(is_own).map(|pod| self.addresses[pod]).collect();
            let name = service["metadata"]["name"].as_str().expect("a name").to_owned();
            if service["spec"]["clusterIP"] == "None" {
                names.push((name, pods.iter().map(Ipv4Addr::to_string).collect()));
                continue;
            }
            let own = self.address(&format!("service {name}"));
            let port = &service["spec"]["ports"][0];
            let to = port_named(&container, &port["targetPort"]);
            let to: Vec<SocketAddr> = pods.iter().map(|&pod| SocketAddr::new(IpAddr::V4(pod), to)).collect();
            let port = port["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
            self.route_service(&name, SocketAddr::new(IpAddr::V4(own), port), &to);
            names.push((name, vec![own.to_string()]));
        }
        self.hosts.set_all(&names);
    }

    fn route_service(&mut self, service: &str, address: SocketAddr, to: &[SocketAddr]) {
        // Only root can listen at a lower port. For such a service, tests connect to the pods directly.
        const FIRST_OF_ALL: u16 = 1024;
        if to.is_empty() {
            self.balancers.remove(service);
        } else if let Some(balancer) = self.balancers.get(service) {
            balancer.set_targets(to);
        } else if address.port() >= FIRST_OF_ALL {
            self.balancers.insert(service.to_owned(), FaultProxy::balance_at(address, to));
        }
    }
}
