//! `fencegate keys`: makes the keys of tickets, and prints their public halves.

use std::path::PathBuf;

use clap::Subcommand;
use fencegate_process::randomness::SystemRandomness;

use fencegate_ticket::{
    KeyFileError, TicketJwkError, jwks,
    keys::{SharedSecret, SigningKeyPair},
};

#[derive(Debug, Subcommand)]
pub(super) enum TicketKeyCommand {
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

/// The reason for which there is no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum TicketKeyCommandError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error("cannot print the public keys")]
    Print(#[from] TicketJwkError),
}

/// Runs the verb and returns the text to print.
pub(super) fn run(verb: &TicketKeyCommand) -> Result<String, TicketKeyCommandError> {
    match verb {
        TicketKeyCommand::New { file, hs256: false } => {
            let pair = SigningKeyPair::generate(&SystemRandomness);
            pair.write(file)?;
            Ok(pair.public().kid().to_owned())
        }
        TicketKeyCommand::New { file, hs256: true } => {
            let secret = SharedSecret::generate(&SystemRandomness);
            secret.write(file)?;
            Ok(secret.kid().to_owned())
        }
        TicketKeyCommand::Public { files } => {
            let pairs = files
                .iter()
                .map(|file| SigningKeyPair::read_private_jwk(file))
                .collect::<Result<Vec<_>, _>>()?;
            let keys: Vec<_> = pairs.iter().map(SigningKeyPair::public).collect();
            Ok(jwks::render_key_set(&keys)?)
        }
    }
}
