//! Named places where a test can stop a thread. Without the feature `failpoints` they are empty.
//!
//! Failpoints are armed through the environment, `FAILPOINTS='after_proof_check=1*sleep(3000)'` (crate `fail`). When
//! an armed failpoint is reached, that is logged, so that a test waits for the event and not for a time.

/// Passes the failpoint `name`.
#[cfg(feature = "failpoints")]
pub fn pass(name: &'static str) {
    if fail::list().iter().any(|(armed, action)| armed == name && action != "off") {
        tracing::info!(name, "failpoint");
    }
    fail::fail_point!(name);
}

/// Does nothing: failpoints are compiled out.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn pass(_name: &'static str) {}

/// Whether a test has switched off the safety rule of this name, with the action `return`. Such a test shows that the
/// checks detect a build without the rule.
#[cfg(feature = "failpoints")]
pub fn is_disabled_by_test(rule: &'static str) -> bool {
    fail::eval(rule, |_| ()).is_some()
}

/// Always false: without failpoints no rule can be switched off.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn is_disabled_by_test(_rule: &'static str) -> bool {
    false
}

/// Arms the failpoints that the environment names. Keep the returned value for the life of the process.
#[cfg(feature = "failpoints")]
pub fn arm_from_env() -> fail::FailScenario<'static> {
    fail::FailScenario::setup()
}
