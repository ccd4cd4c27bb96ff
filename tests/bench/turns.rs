//! Paths of a request that are measured alternately. Each pair of paths is one comparison.

use std::fmt::Debug;

use crate::{
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
};

/// The name of a comparison, the measured path, the path to compare it with, the latter's name in the report, and
/// the goal.
pub(crate) type ComparedPair<W> = (&'static str, W, W, &'static str, RatioGoal);

/// Measures every path once in each round. `rate`: returns the requests per second of a path; its second argument is
/// the number of the round.
pub(crate) fn compare<W: Copy + Debug + PartialEq>(
    run: &BenchRun,
    ways: &[W],
    pairs: &[ComparedPair<W>],
    rate: impl Fn(W, u32) -> BenchResult<f64>,
) -> BenchResult<Vec<BenchRow>> {
    let mut order = ways.to_vec();
    let mut rounds = Vec::new();
    for round in 1..=run.rounds {
        let rates: Vec<(W, f64)> =
            order.iter().map(|&way| Ok((way, rate(way, round)?))).collect::<BenchResult<_>>()?;
        let told: Vec<String> = rates.iter().map(|(way, rate)| format!("{way:?} {rate:.0}")).collect();
        run.print(&format!("round {round}: {} requests/s", told.join(", ")));
        rounds.push(rates);
        // The order is reversed in each round, so that none is always the first.
        order.reverse();
    }
    let of = |rates: &[(W, f64)], wanted| rates.iter().find(|(way, _)| *way == wanted).map(|(_, rate)| *rate);
    let bench = |&(name, ours, theirs, peer, goal): &ComparedPair<W>| {
        let round = |rates: &Vec<_>| Some(BenchRound { ours: of(rates, ours)?, theirs: of(rates, theirs)? });
        BenchRow { name, peer, unit: "requests/s", goal, rounds: rounds.iter().filter_map(round).collect() }
    };
    Ok(pairs.iter().map(bench).collect())
}
