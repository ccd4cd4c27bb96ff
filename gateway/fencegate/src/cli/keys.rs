//! `fencegate keys`: makes the keys of tickets, and prints their public halves.

use std::path::PathBuf;

use clap::Subcommand;
use fencegate_process::randomness::SystemRandomness;

use fencegate_guard::ticket::{
    BadFile, BadKey, jwks,
    keys::{Pair, Secret},
};

#[derive(Debug, Subcommand)]
pub(super) enum KeysVerb {
    /// Make a private key in a new file that only you can read, and print its name (`kid`).
    New {
        /// The new file. An existing file is not changed.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Make a secret that gateway and guard share, instead of an Ed25519 key. Whoever can verify with it can also
        /// sign.
        #[arg(long)]
        hs256: bool,
    },
    /// Print the public halves of private keys as a JSON Web Key Set, for guards. Give both files while you rotate.
    Public {
        /// The files of private keys.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("print the public keys")]
    Print(#[from] BadKey),
}

/// Runs the verb and returns the text to print.
pub(super) fn run(verb: &KeysVerb) -> Result<String, Trouble> {
    match verb {
        KeysVerb::New { file, hs256: false } => {
            let pair = Pair::generate(&SystemRandomness);
            pair.write(file)?;
            Ok(pair.public().kid().to_owned())
        }
        KeysVerb::New { file, hs256: true } => {
            let secret = Secret::generate(&SystemRandomness);
            secret.write(file)?;
            Ok(secret.kid().to_owned())
        }
        KeysVerb::Public { files } => {
            let pairs = files.iter().map(|file| Pair::read(file)).collect::<Result<Vec<_>, _>>()?;
            let keys: Vec<_> = pairs.iter().map(Pair::public).collect();
            Ok(jwks::render(&keys)?)
        }
    }
}
