//! Makes a store, and opens it as a new instance.

use std::sync::Arc;

use fencegate_process::{clock::SharedClock, randomness::Randomness};

use super::{
    connect::{Connection, For, Unanswered, millis},
    driver,
    instance::{Instance, Postgres, Terms},
    migrate,
    place::{NotUsable, Place},
    unavailable::Unavailable,
};
use crate::store::Identity;

/// The server cuts longer ones, and connections of two instances would be taken for those of one.
const LONGEST_NAME: usize = 36;

impl Postgres {
    /// Makes schema, tables and functions, with a floor below which no token will pass.
    ///
    /// # Errors
    /// There is a store already: one is never made anew silently, because that forgets every mark.
    pub async fn init(place: &Place, identity: &Identity, floor: u64) -> Result<(), NotUsable> {
        migrate::init(place, identity, floor).await
    }

    /// Whose store it is. Nothing is changed, and no guard joins.
    ///
    /// # Errors
    /// There is no store, or one that this build must not use.
    pub async fn inspect(place: &Place) -> Result<Identity, NotUsable> {
        migrate::inspect(place).await
    }

    /// Opens what [`Postgres::init`] made, as a new instance. To be called on the runtime that lasts: what it asks is
    /// asked from there. `name` is of this process, and of no other one ever.
    ///
    /// # Errors
    /// There is no store, or one that this build must not use.
    pub async fn open(
        place: &Place,
        terms: Terms,
        clock: SharedClock,
        randomness: Arc<dyn Randomness>,
        name: &str,
    ) -> Result<Self, NotUsable> {
        if name.is_empty() || name.len() > LONGEST_NAME || !name.is_ascii() {
            let why = format!(
                "`{name}` names no process: {LONGEST_NAME} letters at most, and none that is not ASCII"
            );
            return Err(NotUsable::Failed { place: place.to_string(), why });
        }
        let identity = migrate::open(place).await?;
        let connection = Connection::open(place, For::Beating, name).await?;
        let asked = clock.now();
        let arrive = format!("SELECT {}.arrive($1, $2, $3)", place.schema);
        let (send_within, max_execution) = (millis(terms.send_within), millis(terms.max_execution));
        let failed = |why: Unanswered| NotUsable::Failed {
            place: place.to_string(),
            why: Unavailable::from(why).to_string(),
        };
        let row = connection.ask(&arrive, &[&name, &send_within, &max_execution]).await.map_err(failed)?;
        let instance = Instance::new(
            (place.clone(), identity, terms),
            (row.get(0), name.to_owned()),
            (clock, randomness),
            asked,
        );
        *instance.beating.lock().await = Some(connection);
        let instance = Arc::new(instance);
        let deciding = tokio::spawn(driver::run(instance.clone())).abort_handle();
        let opened = Self::new(instance, deciding);
        let unheard = |why: Unavailable| NotUsable::Failed { place: place.to_string(), why: why.to_string() };
        opened.beat().await.map_err(unheard)?;
        Ok(opened)
    }
}
