//! Measures the gateway and other programs alternately, and reports ratios.
//!
//! Reading order: [`locks`], [`locked`], [`forward`], [`proxy`], [`options`], [`growth`] and [`instructions`] are the
//! suites, [`report`] has the results, [`chart`] and [`publish`] show them; [`gateway`], [`curator`] and [`peers`] are
//! the measured programs, [`wrk`] sends the requests. [`run`] is the set-up of one run.

mod chart;
mod curator;
mod forward;
mod gateway;
mod growth;
mod guard;
mod h2load;
mod instructions;
mod lock_clients;
mod locked;
mod locks;
mod nginx;
mod options;
mod peers;
mod plain;
mod process;
mod proxy;
mod publish;
mod report;
mod result;
mod routes;
mod run;
mod training;
mod turns;
mod wrk;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use clap::{Parser, ValueEnum};

use crate::{
    report::{BenchReport, BenchRow},
    result::BenchResult,
    run::BenchRun,
};

#[derive(Debug, Parser)]
struct Arguments {
    suite: Suite,
    /// The number of rounds. An odd number has a median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// The seconds that are measured in each turn, after warming up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=120))]
    seconds: u32,
    /// A folder of programs to take in the place of the released ones, to try the benches out: what they give is written beside
    /// the report, and never published.
    #[arg(long)]
    built: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    Locks,
    Proxy,
    Guard,
    Options,
    Routes,
    Forward,
    Instructions,
    LockedPeers,
    Growth,
    /// Everything above.
    All,
    /// Measures nothing: draws the report, and writes it into the documents.
    Chart,
    /// Measures nothing: the load under which programs count what they do.
    Train,
}

type MeasureFn = fn(&BenchRun) -> BenchResult<Vec<BenchRow>>;
const SUITES: [(Suite, MeasureFn); 10] = [
    (Suite::Locks, locks::measure),
    (Suite::Proxy, proxy::measure),
    (Suite::Guard, guard::measure),
    (Suite::Options, options::measure),
    (Suite::Routes, routes::measure),
    (Suite::Forward, forward::measure),
    (Suite::LockedPeers, locked::measure),
    (Suite::Growth, growth::measure),
    (Suite::Instructions, instructions::measure),
    (Suite::Instructions, guard::counted::measure),
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(code) => code,
        Err(trouble) => {
            eprintln!("error: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the suites. If one fails, the results of the others are kept.
fn measure(arguments: &Arguments) -> BenchResult<ExitCode> {
    let run = BenchRun::begin(arguments.rounds, arguments.seconds, arguments.built.clone())?;
    if arguments.suite == Suite::Chart {
        publish::run_all(&run)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.suite == Suite::Train {
        training::train(&run)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = BenchReport::open(run.results("report.json"))?;
    let mut code = ExitCode::SUCCESS;
    for (suite, measure) in SUITES {
        if ![suite, Suite::All].contains(&arguments.suite) {
            continue;
        }
        let begun = Instant::now();
        match measure(&run) {
            Ok(benches) => {
                report.replace(benches)?;
                run.print(&format!("{suite:?} took {} s", begun.elapsed().as_secs()));
            }
            Err(trouble) => {
                eprintln!("error: {suite:?} could not be measured: {trouble}");
                code = ExitCode::FAILURE;
            }
        }
    }
    print!("{report}");
    Ok(code)
}
