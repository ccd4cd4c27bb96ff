//! Measures the gateway beside its peers, in turns, and reports ratios.
//!
//! Reading order: [`locks`], [`forward`], [`proxy`] and [`instructions`] say what is measured, [`report`] what becomes of it; [`gateway`], [`curator`]
//! and [`peers`] are who is measured, [`wrk`] who asks. [`run`] is what one run has to itself.

mod curator;
mod forward;
mod gateway;
mod guard;
mod instructions;
mod locks;
mod nginx;
mod outcome;
mod peers;
mod process;
mod proxy;
mod report;
mod routes;
mod run;
mod wrk;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::{
    outcome::Outcome,
    report::{Bench, Report},
    run::Run,
};

#[derive(Debug, Parser)]
struct Arguments {
    suite: Suite,
    /// Turns that everybody has; an odd number has a middle.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// That are measured in each turn, after warming up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=120))]
    seconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    Locks,
    Proxy,
    Guard,
    Routes,
    Forward,
    Instructions,
    All,
}

type Measure = fn(&Run) -> Outcome<Vec<Bench>>;
const SUITES: [(Suite, Measure); 6] = [
    (Suite::Locks, locks::measure),
    (Suite::Proxy, proxy::measure),
    (Suite::Guard, guard::measure),
    (Suite::Routes, routes::measure),
    (Suite::Forward, forward::measure),
    (Suite::Instructions, instructions::measure),
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

/// What one suite found is kept when another one fails.
fn measure(arguments: &Arguments) -> Outcome<ExitCode> {
    let run = Run::begin(arguments.rounds, arguments.seconds)?;
    let mut report = Report::open(run.report())?;
    let mut code = ExitCode::SUCCESS;
    for (suite, measure) in SUITES {
        if ![suite, Suite::All].contains(&arguments.suite) {
            continue;
        }
        match measure(&run) {
            Ok(benches) => report.replace(benches)?,
            Err(trouble) => {
                eprintln!("error: {suite:?} could not be measured: {trouble}");
                code = ExitCode::FAILURE;
            }
        }
    }
    print!("{report}");
    Ok(code)
}
