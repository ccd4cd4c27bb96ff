//! Finds the file or process for a command: by the command line, else by the environment, else at the path that
//! packages use.

use std::{
    env,
    ffi::OsString,
    path::{self, Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::command_hint::{self, CommandHintTarget};

use super::{exit::USAGE, out::print_error, policy};

/// The environment variable that names the file.
pub(super) const CONFIG: &str = "FENCEGATE_CONFIG";

/// The environment variable that names an admin listener.
pub(super) const ADMIN: &str = "FENCEGATE_ADMIN";

/// The policy of a gateway.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The policy. Default: $FENCEGATE_CONFIG, else /etc/fencegate/policy.yaml.
    #[arg(short = 'c', long = "config", value_name = "POLICY")]
    pub(super) config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Reads the plan for a verb that needs it only to find ZooKeeper. Warnings are not shown here; `check` and
    /// `run` show them.
    pub(super) fn plan(&self) -> Result<GatewayPlan, ExitCode> {
        policy::read_gateway_quietly(&resolve_file(self.config.as_deref(), CommandHintTarget::Gateway)?)
    }
}

/// The path at which a package installs the file.
pub(super) fn default_path(of: CommandHintTarget) -> &'static Path {
    Path::new(match of {
        CommandHintTarget::Gateway => "/etc/fencegate/policy.yaml",
        CommandHintTarget::Guard => "/etc/fencegate/guard.yaml",
    })
}

/// Like [`resolve_file`], with an absolute path, because printed commands are also run from other folders.
pub(super) fn absolute_file(given: Option<&Path>, of: CommandHintTarget) -> Result<PathBuf, ExitCode> {
    let absolute = given.map(|given| path::absolute(given).unwrap_or_else(|_| given.to_owned()));
    resolve_file(absolute.as_deref(), of)
}

/// The file to use. Printed commands name it again if the user named it.
pub(super) fn resolve_file(given: Option<&Path>, of: CommandHintTarget) -> Result<PathBuf, ExitCode> {
    if let Some(given) = given {
        command_hint::set_command_arguments(of, [Path::new("-c"), given]);
    }
    resolve_file_without_hint(given, of)
}

/// Like [`resolve_file`], for a file whose kind is not known yet, so printed commands do not name it again.
pub(super) fn resolve_file_without_hint(
    given: Option<&Path>,
    of: CommandHintTarget,
) -> Result<PathBuf, ExitCode> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    env_or_default(env_var(CONFIG), of, Path::exists).ok_or_else(|| {
        let usual = default_path(of).display();
        print_error(format_args!(
            "error: FG0530: no file is named by `-c FILE`, none by {CONFIG}, and {usual} is not there; they are taken in this order"
        ));
        ExitCode::from(USAGE)
    })
}

/// The file that the environment names, else the installed file if it exists.
fn env_or_default(
    environment: Option<OsString>,
    of: CommandHintTarget,
    is_there: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let usual = default_path(of);
    environment.map(PathBuf::from).or_else(|| is_there(usual).then(|| usual.to_owned()))
}

/// An empty variable counts as not set, as in shell scripts.
fn env_var(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// How the user has specified a running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdminTargetSource {
    /// By the address of its admin listener.
    Admin(String),
    /// By the file that it was started with.
    File(PathBuf),
    /// Not specified. The address is the default one, unless the file of the process has another one.
    Default(&'static str),
}

/// The process to query. The command line takes precedence over the environment.
pub(super) fn resolve_target(
    admin: Option<&str>,
    file: Option<&Path>,
    of: CommandHintTarget,
) -> AdminTargetSource {
    let named = |name| env_var(name).map(|value| value.to_string_lossy().into_owned());
    choose_target(admin, file, named(ADMIN), env_var(CONFIG), of, Path::exists)
}

fn choose_target(
    admin: Option<&str>,
    file: Option<&Path>,
    admin_of_environment: Option<String>,
    file_of_environment: Option<OsString>,
    of: CommandHintTarget,
    is_there: impl Fn(&Path) -> bool,
) -> AdminTargetSource {
    match (admin, file, admin_of_environment) {
        (Some(admin), _, _) => AdminTargetSource::Admin(admin.to_owned()),
        (None, Some(file), _) => AdminTargetSource::File(file.to_owned()),
        (None, None, Some(admin)) => AdminTargetSource::Admin(admin),
        (None, None, None) => env_or_default(file_of_environment, of, is_there).map_or(
            AdminTargetSource::Default(match of {
                CommandHintTarget::Gateway => "127.0.0.1:9901",
                CommandHintTarget::Guard => "127.0.0.1:9902",
            }),
            AdminTargetSource::File,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command line takes precedence over the environment, and the environment over the default file and
    /// address.
    #[test]
    fn command_line_overrides_environment_overrides_default() {
        let admin = Some("a:1");
        let file = Some(Path::new("line.yaml"));
        let environment = || (Some("b:2".to_owned()), Some(OsString::from("env.yaml")));
        let only_file = || (None, Some(OsString::from("env.yaml")));
        let there = |_: &Path| true;
        let not_there = |_: &Path| false;
        let of = CommandHintTarget::Guard;
        for ((admin, file), (admin_of_environment, file_of_environment), is_there, expected) in [
            (
                (admin, None),
                environment(),
                there as fn(&Path) -> bool,
                AdminTargetSource::Admin("a:1".into()),
            ),
            ((None, file), environment(), there, AdminTargetSource::File("line.yaml".into())),
            ((None, None), environment(), there, AdminTargetSource::Admin("b:2".into())),
            ((None, None), only_file(), there, AdminTargetSource::File("env.yaml".into())),
            ((None, None), (None, None), there, AdminTargetSource::File("/etc/fencegate/guard.yaml".into())),
            ((None, None), (None, None), not_there, AdminTargetSource::Default("127.0.0.1:9902")),
        ] {
            let chosen = choose_target(admin, file, admin_of_environment, file_of_environment, of, is_there);
            assert_eq!(chosen, expected);
        }
        assert_eq!(env_or_default(None, CommandHintTarget::Gateway, not_there), None);
        assert_eq!(
            env_or_default(None, CommandHintTarget::Gateway, there),
            Some("/etc/fencegate/policy.yaml".into())
        );
    }
}
