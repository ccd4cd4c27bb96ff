//! Who has looked up by which plan it is served, and is not counted under it yet.

use std::{cell::Cell, rc::Rc};

use tokio::sync::Notify;

/// The requests of one desk that have looked it up and are counted nowhere else yet. On HTTP/2 other tasks run between
/// the two; a plan that is put in force meanwhile must not take them for nobody.
#[derive(Default)]
pub struct Entering {
    requests: Cell<usize>,
    /// The last of them is counted, or has gone.
    none: Notify,
}

/// A request that has looked its desk up. Dropped when it is counted under the plan of that desk, or ends.
pub struct Entrance(Rc<Entering>);

impl Entering {
    pub fn enter(self: &Rc<Self>) -> Entrance {
        self.requests.set(self.requests.get() + 1);
        Entrance(self.clone())
    }

    pub async fn nobody(&self) {
        while self.requests.get() > 0 {
            self.none.notified().await;
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let left = self.0.requests.get() - 1;
        self.0.requests.set(left);
        if left == 0 {
            self.0.none.notify_one();
        }
    }
}
