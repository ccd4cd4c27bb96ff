//! The volumes of a container as folders of a test. The folders' paths replace the container's paths in all texts.

use std::{
    fs::{self, Permissions},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

pub(super) struct VolumeMounts {
    address: Ipv4Addr,
    all: Vec<VolumeMount>,
}

struct VolumeMount {
    path: String,
    folder: PathBuf,
    files: Vec<(String, Vec<u8>, u32)>,
}

impl VolumeMounts {
    /// No volumes, for a pod with this address.
    pub(super) fn at(address: Ipv4Addr) -> Self {
        Self { address, all: Vec::new() }
    }

    pub(super) fn add(&mut self, path: &str, folder: PathBuf, files: Vec<(String, Vec<u8>, u32)>) {
        self.all.push(VolumeMount { path: path.to_owned(), folder, files });
        // Longer paths are replaced first: `/etc/fencegate-tickets` is not a path in `/etc/fencegate`.
        self.all.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
    }

    /// Replaces the container's paths in a text by the folders, and `0.0.0.0` by the pod's address.
    pub(super) fn replace_mount_paths(&self, text: &str) -> String {
        let text = self.all.iter().fold(text.to_owned(), |text, mount| {
            text.replace(&mount.path, &mount.folder.display().to_string())
        });
        text.replace("0.0.0.0:", &format!("{}:", self.address))
    }

    /// Makes the folders, and writes their files anew.
    pub(super) fn write(&self) {
        for mount in &self.all {
            fs::create_dir_all(&mount.folder).expect("our own folder");
            for (name, content, mode) in &mount.files {
                let file = mount.folder.join(name);
                drop(fs::remove_file(&file));
                let content = match std::str::from_utf8(content) {
                    Ok(text) => self.replace_mount_paths(text).into_bytes(),
                    Err(_) => content.clone(),
                };
                fs::write(&file, content).expect("our own folder");
                fs::set_permissions(&file, Permissions::from_mode(*mode)).expect("our own file");
            }
        }
    }
}

/// The files of a ConfigMap.
pub(super) fn texts(data: &Value) -> Vec<(String, Vec<u8>, u32)> {
    each(data).map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec(), 0o644)).collect()
}

/// The files of a secret.
pub(super) fn secrets(data: &Value, mode: &Value) -> Vec<(String, Vec<u8>, u32)> {
    let mode = mode.as_u64().and_then(|mode| u32::try_from(mode).ok()).expect("a mode");
    let decoded = |text: &str| BASE64_STANDARD.decode(text).expect("base64");
    each(data).map(|(name, text)| (name.to_owned(), decoded(text), mode)).collect()
}

fn each(data: &Value) -> impl Iterator<Item = (&str, &str)> {
    let files = data.as_object().expect("files").iter();
    files.map(|(name, text)| (name.as_str(), text.as_str().expect("text")))
}
