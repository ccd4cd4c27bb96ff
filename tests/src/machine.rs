//! Describes the machine on which something was measured.

use std::{fs, thread};

/// A description such as `2 cores, AMD EPYC`.
pub fn describe_machine() -> String {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{cores} cores, {}", cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()))
}

fn cpu_model(cpuinfo: &str) -> String {
    let named = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    named.map_or("of a kind that the kernel does not name", |(_, name)| name.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processor model is read from `/proc/cpuinfo`, and a text without one gives a description that says so.
    #[test]
    fn processor_model_is_read_from_cpuinfo() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\nstepping\t: 1\n"), "AMD EPYC");
        assert!(cpu_model("processor\t: 0\n").contains("does not name"));
    }
}
