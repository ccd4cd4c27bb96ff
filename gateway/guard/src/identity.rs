//! The announcement of a guard: gateways fetch it before the first request on every connection.

use std::time::Duration;

use fencegate_guard_store::error::DispatchRefusedError;
use fencegate_policies::plan::Enforcement;
use serde::{Deserialize, Serialize};

use crate::{backend_types::TokenEpochBounds, guard::Guard};

/// The path of the announcement, which no service uses.
pub const ANNOUNCEMENT: &str = "/.fencegate/v1/guard";

/// Version of the announcement's form.
const FORMAT: u32 = 1;

/// The answer to [`ANNOUNCEMENT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Announcement))]
pub struct GuardIdentityResponse {
    pub format: u32,
    /// The name of the store. All guards of one upstream have one store.
    pub store: String,
    /// The database of the store, if several guards may share it. Older guards do not have this field, and share
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Names the process. Two processes with one store that cannot be shared have copies of it.
    pub instance: String,
    /// The installation whose tokens are compared.
    pub ensemble: String,
    pub floor: u64,
    /// The largest epoch that was ever announced. A store that comes back with less was restored from an older state.
    pub highest: u64,
    /// Milliseconds.
    pub settle: u64,
    /// Milliseconds.
    pub max_execution: u64,
    /// The guard only observes: it refuses nothing, so it promises nothing.
    pub observes: bool,
    /// How long the process has had its store, in milliseconds. Older guards do not have this field.
    #[serde(default)]
    pub up: Option<u64>,
}

impl GuardIdentityResponse {
    /// The longest time from a request to its answer: the wait at the guard, and the execution.
    pub fn max_response_time(&self) -> Duration {
        Duration::from_millis(self.settle.saturating_add(self.max_execution))
    }
}

impl Guard {
    /// # Errors
    /// Returns an error if the store is not reachable.
    pub async fn announcement(&self) -> Result<GuardIdentityResponse, DispatchRefusedError> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let TokenEpochBounds { floor, highest, database } = self.backend.progress().await?;
        Ok(GuardIdentityResponse {
            format: FORMAT,
            store: self.identity.store.clone(),
            shared: database,
            instance: self.instance.clone(),
            ensemble: self.identity.ensemble.clone(),
            floor,
            highest,
            settle: millis(self.config.settle),
            max_execution: millis(self.config.max_execution),
            observes: self.config.enforce == Enforcement::Observe,
            up: Some(millis(self.now().since(self.since))),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_announcement()(
            (store, shared, instance, ensemble) in any::<(String, Option<String>, String, String)>(),
            (format, floor, highest) in any::<(u32, u64, u64)>(),
            (settle, max_execution, observes, up) in any::<(u64, u64, bool, Option<u64>)>(),
        ) -> GuardIdentityResponse {
            GuardIdentityResponse { format, store, shared, instance, ensemble, floor, highest, settle, max_execution, observes, up }
        }
    }

    proptest! {
        /// An announcement is read as it was written, also with fields that a later build adds.
        #[test]
        fn announcement_roundtrips_with_unknown_fields(announced in any_announcement(), later: u32) {
            let mut said = serde_json::to_value(&announced).expect("a document");
            // A field of a later build.
            said["later"] = later.into();
            let read: GuardIdentityResponse = serde_json::from_value(said).expect("its own form");
            prop_assert!(read.max_response_time() >= Duration::from_millis(announced.settle.max(announced.max_execution)));
            prop_assert_eq!(read, announced);
        }

        /// A field that occurs twice is refused, because it would be undefined which of the two counts.
        #[test]
        fn duplicate_announced_field_is_refused(announced in any_announcement(), which: prop::sample::Index) {
            let said = serde_json::to_value(&announced).expect("a document");
            let members: Vec<_> = said.as_object().expect("an object").iter().collect();
            let (name, value) = members[which.index(members.len())];
            let twice = said.to_string().replacen('{', &format!("{{\"{name}\":{value},"), 1);
            prop_assert!(serde_json::from_str::<GuardIdentityResponse>(&twice).is_err(), "{}", twice);
        }

        /// Any bytes that are no complete announcement are refused without a panic.
        #[test]
        fn malformed_announcement_is_refused(
            bytes in prop_oneof![
                any::<Vec<u8>>(),
                "([\\[\\]{},:]|\"(format|store|floor|highest|settle|up)\"|-?[0-9]{1,20}|null|true){0,40}".prop_map(String::into_bytes),
            ],
        ) {
            let read = serde_json::from_slice::<GuardIdentityResponse>(&bytes);
            prop_assert!(read.is_err(), "it leaves out what every guard says: {:?}", read);
        }
    }
}
