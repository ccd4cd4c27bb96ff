//! Metrics of the process itself, with the usual names of the Prometheus client libraries.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::{
    Counter, Gauge, IntGauge,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

/// Metrics that are read from `/proc` at each scrape.
pub(crate) struct ProcessMetrics {
    cpu: Counter,
    started: Gauge,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
    open_files: IntGauge,
    most_files: IntGauge,
}

/// Fields of `/proc/self/stat`, in the units of that file.
struct ProcStat {
    cpu_ticks: u64,
    threads: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Default for ProcessMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessMetrics {
    pub(crate) fn new() -> Self {
        let gauge = |name, help| IntGauge::new(name, help).expect("well-formed");
        let process = Self {
            cpu: Counter::new("process_cpu_seconds_total", "Processor time used.").expect("well-formed"),
            started: Gauge::new("process_start_time_seconds", "When the process started, since 1970.")
                .expect("well-formed"),
            resident: gauge("process_resident_memory_bytes", "Memory in use."),
            virtual_memory: gauge("process_virtual_memory_bytes", "Address space in use."),
            threads: gauge("process_threads", "Threads."),
            open_files: gauge("process_open_fds", "Open file descriptors."),
            most_files: gauge("process_max_fds", "File descriptors that may be open."),
        };
        // The time of this call counts as the start of the process, because metrics are made first. The exact time
        // would need `/proc/stat`, which may be hidden from the process.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        process.started.set(now.as_secs_f64());
        process
    }

    /// Reads the values anew. A value that cannot be read stays as it was.
    fn refresh_process_stats(&self) {
        if let Some(stat) = ProcStat::read() {
            self.cpu.inc_by((ticks_to_seconds(stat.cpu_ticks) - self.cpu.get()).max(0.0));
            set_gauge(&self.threads, stat.threads);
            set_gauge(&self.virtual_memory, stat.virtual_bytes);
            set_gauge(&self.resident, stat.resident_pages * page_size() as u64);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            set_gauge(&self.open_files, files.count() as u64);
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            set_gauge(&self.most_files, most);
        }
    }

    fn collectors(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu,
            &self.started,
            &self.resident,
            &self.virtual_memory,
            &self.threads,
            &self.open_files,
            &self.most_files,
        ]
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(|one| one.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh_process_stats();
        self.collectors().into_iter().flat_map(|one| one.collect()).collect()
    }
}

impl ProcStat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name of the program may contain spaces and parentheses, so fields are counted from the end of the
        // name. The first field after the name is number 3 of proc(5).
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(14)? + number(15)?,
            threads: number(20)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

fn set_gauge(gauge: &IntGauge, value: u64) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/self/stat` is parsed even if the program's name contains spaces and parentheses; a cut line gives
    /// nothing.
    #[test]
    fn stat_parses_any_program_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 9 0 500 4096 17 0";
        let stat = ProcStat::parse(&format!("42 (a) b) {fields}")).expect("read");
        assert_eq!((stat.cpu_ticks, stat.threads), (100, 9));
        assert_eq!((stat.virtual_bytes, stat.resident_pages), (4096, 17));
        assert!(ProcStat::parse("42 (cut").is_none() && ProcStat::parse("42 (cut) S 1 2").is_none());
    }

    /// The metrics of this process report memory, threads, open files and a start time.
    #[test]
    fn own_process_has_nonzero_metrics() {
        let process = ProcessMetrics::new();
        process.refresh_process_stats();
        assert!(process.resident.get() > 1 << 16 && process.threads.get() >= 1);
        assert!((3..=process.most_files.get()).contains(&process.open_files.get()));
        // The start time is later than the year 2020.
        assert!(process.started.get() > 1.577e9);
    }
}
