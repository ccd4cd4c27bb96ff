//! Sends tokens to a service that claims to compare them, and judges its answers and effects from outside.
//!
//! Begin with [`cases`], the list of questions. [`action`] is the language of cases, and [`play`] sends their
//! requests. [`linearizable`] judges overlapping requests, [`effects`] counts what they have done, and [`report`]
//! tells the results.

pub mod action;
pub mod case;
pub mod case_result;
pub mod cases;
pub mod effects;
pub mod linearizable;
pub mod play;
pub mod report;
pub mod scene;
pub mod service;
pub mod shot;
pub mod socket;
pub mod stamp;
pub mod template;

use std::{io, time::Duration};

use tokio::time::Instant;

use self::{
    case_result::{CaseResult, Proof},
    effects::{Scale, Sight},
    report::{Played, VerifyReport},
    scene::{Aim, Ask, Scene},
    service::Service,
    stamp::{Stamp, epoch},
};

/// Why nothing could be verified.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{url} {why}")]
    Unreachable { url: String, why: socket::Unanswered },
    #[error(
        "{url} is a gateway, which replaces every token by its own: name the address of the service behind it"
    )]
    Gateway { url: String },
    #[error("start a runtime")]
    Runtime(#[from] io::Error),
}

/// The form of the keys that are made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// 16 letters and digits.
    Words,
    /// 15 digits, the first of which is not 0.
    Numbers,
}

impl Names {
    /// A beginning for all keys of one run, which no other run has.
    fn run(self) -> Result<String, io::Error> {
        let random = getrandom::u64().map_err(io::Error::other)?;
        Ok(match self {
            Self::Words => {
                let letters = (0..9).map(|place| {
                    let letter = u8::try_from(random >> (5 * place) & 31).expect("five bits");
                    char::from(b"abcdefghijkmnpqrstuvwxyz23456789"[usize::from(letter)])
                });
                format!("fv{}", letters.collect::<String>())
            }
            Self::Numbers => (1_000_000_000 + random % 9_000_000_000).to_string(),
        })
    }
}

/// Plays all cases that apply. `told` gets each result as soon as it is known.
///
/// # Errors
/// [`Trouble`] if there was no service to test.
pub fn verify(
    service: &Service,
    names: Names,
    mut told: impl FnMut(&Played),
) -> Result<VerifyReport, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let began = Instant::now();
        let scene = rehearsed(service, names.run()?).await?;
        let proof = if service.sight.sees() { Proof::Effects } else { Proof::Answers };
        let mut entries = Vec::new();
        for case in cases::all() {
            let entry = match case.skipped(service) {
                Some(why) => Played::skipped(case, why),
                None => {
                    let began = Instant::now();
                    let (outcome, events) = play::play(&scene, case).await;
                    Played { case, verdict: CaseResult::of(outcome, proof), events, took: began.elapsed() }
                }
            };
            told(&entry);
            entries.push(entry);
        }
        Ok(VerifyReport { entries, took: began.elapsed() })
    })
}

/// Checks that a service answers, and measures how long a write takes and what one effect changes.
async fn rehearsed<'a>(service: &'a Service, run: String) -> Result<Scene<'a>, Trouble> {
    for instance in &service.instances {
        let unreachable = |why| Trouble::Unreachable { url: instance.url.clone(), why };
        instance.open().await.map_err(unreachable)?;
    }
    let mut scene = Scene::new(service, run);
    let keys = scene.fresh();
    let (mut seen, mut paces) = (vec![scene.look(&keys).await.ok().flatten()], Vec::new());
    for number in 1..=3 {
        let aim =
            Aim { ask: Ask::Write, keys: &keys, stamp: Stamp::Whole(epoch(number)), at: 0, operation: None };
        let shot = scene.send(aim).await;
        if shot.passed_a_gateway {
            return Err(Trouble::Gateway { url: service.instances[0].url.clone() });
        }
        paces.push(shot.ended - shot.began);
        seen.push(scene.look(&keys).await.ok().flatten());
    }
    paces.sort_unstable();
    scene.pace = paces[1].clamp(Duration::from_millis(1), Duration::from_secs(5));
    if let ([Some(before), Some(one), Some(two), ..], Sight::Observe { .. }) = (&*seen, &service.sight) {
        scene.scale = Scale::learned(before, one, two);
    }
    Ok(scene)
}
