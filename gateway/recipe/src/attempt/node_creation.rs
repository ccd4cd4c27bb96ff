//! How an attempt creates its node: below an existing parent, with the parent, below a retained one, or in place of
//! another node.

use fencegate_process::failpoint;
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        batch::{CreateChild, CreateParentAndFirstChild},
        batch_sender::CreatedChild,
        client::{CreatedNode, MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
    },
};
use futures_util::future::OptionFuture;

use super::LockAttempt;
use crate::{
    grant_record::GrantRecord,
    lock_node::{CREATE_ROUNDS, LockNode, LockNodeAttempt, PATIENT_ROUNDS, definite_error},
};

impl<L: ZkClient> LockAttempt<L> {
    /// Creates one node and lists its siblings. This takes one round trip if the session's cache is right about whether
    /// the parent exists.
    pub(super) async fn create_node(&self) -> Result<(LockNode, Vec<String>), GrantError> {
        let mut made = false;
        let created = self.create_in_rounds(&mut made).await;
        if made && created.is_err() {
            self.candidate.remove_unused_parent().await;
        }
        created
    }

    /// Tries to create the node until a round succeeds. Sets `made` once a round has created the parent by itself.
    async fn create_in_rounds(&self, made: &mut bool) -> Result<(LockNode, Vec<String>), GrantError> {
        let parents = &self.candidate.live.registry.parents;
        let mut kept = self.candidate.take_retained_parent_sequence();
        for round in 0..CREATE_ROUNDS {
            let LockNodeAttempt { layout: line, parent, .. } = &self.candidate;
            // Other programs mostly create their parents themselves, so the first create below such a parent is sent
            // without a create of the parent.
            let below = !line.is_native() || round >= PATIENT_ROUNDS || parents.is_expected_to_exist(parent);
            let found = match kept.take() {
                Some(number) => self.create_below_retained(number).await?,
                None if below => self.create_below_existing_parent(round, made).await?,
                None => self.create_with_parent().await?,
            };
            if let Some(found) = found {
                self.candidate.record_children(&found.1);
                return Ok(found);
            }
        }
        Err(GrantError::Service("the lock node could not be made: its parent came and went".into()))
    }

    /// Creates the node below an existing parent. `None`: the parent was missing, or the answer was lost and no node
    /// was created; begin again.
    async fn create_below_existing_parent(
        &self,
        round: usize,
        made: &mut bool,
    ) -> Result<Option<(LockNode, Vec<String>)>, GrantError> {
        let LockNodeAttempt { live, parent, .. } = &self.candidate;
        self.record_create_sent();
        let requested = self.candidate.requested_path();
        let makes = round >= PATIENT_ROUNDS && self.candidate.layout.is_native();
        let (record, kind) = self.candidate.parent_data();
        let above = makes.then(|| live.client.create(parent, record, kind));
        let create = live.client.create(&requested, &self.says, NodeCreateMode::EphemeralSequential);
        let list = live.client.children(parent);
        failpoint::pass("after_create_sent");
        // The answer to the node's create shows whether the parent exists, so a refused create of the parent is no
        // error. A parent that was created here is removed again if no node gets created.
        let (above, created, children) = tokio::join!(OptionFuture::from(above), create, list);
        *made |= matches!(above, Some(Ok(_)));
        match created {
            Ok(CreatedNode { stat: seen, sequence }) => {
                let name = self.candidate.node_name(sequence);
                self.made.record_names(&name);
                let children = match children {
                    Ok(children) => children,
                    Err(_) => self.candidate.list_children().await?,
                };
                Ok(Some((LockNode { name, stat: seen }, children)))
            }
            Err(ZkError::NoNode) => {
                self.made.record_no_nodes_left();
                live.registry.parents.mark_absent(parent);
                if !self.candidate.layout.is_native() {
                    self.candidate.create_ancestors().await?;
                }
                Ok(None)
            }
            Err(ZkError::Ambiguous(_)) => self.candidate.recover_created_node().await,
            Err(fault) => {
                self.made.record_no_nodes_left();
                Err(definite_error(fault))
            }
        }
    }

    /// Creates parent and node in one transaction, as the first contender of a key does. `None`: another contender was
    /// faster, or the shard was missing and is now created; begin again.
    async fn create_with_parent(&self) -> Result<Option<(LockNode, Vec<String>)>, GrantError> {
        let LockNodeAttempt { live, parent, .. } = &self.candidate;
        let requested = self.candidate.requested_path();
        let name = self.candidate.node_name(0);
        let path = self.candidate.path(&name);
        let parent = parent.clone();
        let (record, kind) = self.candidate.parent_data();
        let record = record.to_owned();
        let says = self.says.clone();
        self.record_create_sent();
        let made = live.create_with_parent(CreateParentAndFirstChild {
            parent,
            record,
            kind,
            requested,
            path,
            says,
        });
        failpoint::pass("after_create_sent");
        match made.await {
            Ok(seen) => {
                self.made.record_names(&name);
                // Below a new parent there can be no other node.
                Ok(Some((LockNode { name: name.clone(), stat: seen }, vec![name])))
            }
            Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                self.candidate.recover_created_node().await
            }
            Err(MultiError { fault, .. }) => {
                self.made.record_no_nodes_left();
                match fault {
                    ZkError::NodeExists => {
                        self.candidate.mark_used_by_others();
                        live.registry.parents.mark_present(&self.candidate.parent);
                        Ok(None)
                    }
                    ZkError::NoNode => self.candidate.create_ancestors().await.map(|()| None),
                    fault => Err(definite_error(fault)),
                }
            }
        }
    }

    /// Creates the node below a retained parent that no other session was seen to use. `number`: the expected sequence
    /// number of the node. `None`: the parent was missing, or the answer was lost and no node was created; begin again.
    async fn create_below_retained(
        &self,
        number: i64,
    ) -> Result<Option<(LockNode, Vec<String>)>, GrantError> {
        let LockNodeAttempt { live, parent, .. } = &self.candidate;
        let expected = self.candidate.path(&self.candidate.node_name(number));
        let parent = parent.clone();
        let requested = self.candidate.requested_path();
        self.record_create_sent();
        let says = self.says.clone();
        let made = live.create_child(CreateChild { parent, requested, expected: expected.clone(), says });
        failpoint::pass("after_create_sent");
        match made.await {
            Ok(CreatedChild { stat: seen, path, children }) => {
                if path != expected {
                    self.candidate.mark_used_by_others();
                }
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                self.made.record_names(&name);
                let children = match children {
                    Some(children) => children,
                    None => self.candidate.list_children().await?,
                };
                Ok(Some((LockNode { name, stat: seen }, children)))
            }
            Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                self.candidate.recover_created_node().await
            }
            Err(MultiError { fault, .. }) => {
                self.made.record_no_nodes_left();
                match fault {
                    ZkError::NoNode => {
                        self.candidate.record_missed_parent();
                        Ok(None)
                    }
                    fault => Err(definite_error(fault)),
                }
            }
        }
    }

    /// Replaces the node of `old` by a node of this attempt in one transaction. `None`: nothing was done, because the
    /// old node was gone, its name is not known, or the server refused the transaction.
    pub(super) async fn replace_node(
        &self,
        old: &Self,
    ) -> Result<Option<(LockNode, Vec<String>)>, GrantError> {
        let Some(name) = old.made.created_names() else { return Ok(None) };
        let live = &self.candidate.live;
        let path = old.candidate.path(&name);
        let requested = self.candidate.requested_path();
        let clean = GrantRecord::clean_record().to_bytes();
        let mut steps = vec![MultiOp::Delete { path: &path, version: None }];
        if old.can_write_clean_record() {
            steps.push(MultiOp::Set { path: &old.candidate.parent, data: &clean });
        }
        steps.push(MultiOp::Create {
            path: &requested,
            data: &self.says,
            kind: NodeCreateMode::EphemeralSequential,
        });
        self.record_create_sent();
        let created = match live.client.commit(&steps).await {
            Ok(mut paths) => paths.pop().flatten(),
            Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => None,
            Err(_) => {
                self.made.record_no_nodes_left();
                return Ok(None);
            }
        };
        let Some(name) = created.as_deref().and_then(|path| path.rsplit('/').next()) else {
            return self.candidate.recover_created_node().await;
        };
        let path = self.candidate.path(name);
        let seen = live.client.stat(&path);
        let children = live.client.children(&self.candidate.parent);
        match tokio::join!(seen, children) {
            (Ok(Some(seen)), Ok(children)) => {
                old.mark_gone();
                self.candidate.record_children(&children);
                let name = name.to_owned();
                self.made.record_names(&name);
                Ok(Some((LockNode { name, stat: seen }, children)))
            }
            _ => self.candidate.recover_created_node().await,
        }
    }
}
