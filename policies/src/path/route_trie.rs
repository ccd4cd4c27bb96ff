//! Path templates as a tree of segments, so that a lookup visits only the few templates that share its segments.

use std::collections::HashMap;

use crate::path::{AffixedVariable, PathTemplate, PathTemplateSegment};

/// A tree of path templates, each with the index under which it was inserted.
#[derive(Debug, Clone)]
pub(crate) struct RouteTrie {
    /// The nodes; the first one is the root.
    nodes: Vec<TrieNode>,
}

#[derive(Debug, Clone)]
struct TrieNode {
    literals: HashMap<Box<str>, usize>,
    variable: Option<usize>,
    /// The children for variables with text around them.
    affixed: Vec<(AffixedVariable, usize)>,
    /// The indices of the templates that end at this node, ascending.
    ends: Vec<usize>,
    /// The indices of the templates with `{rest...}` after this node, ascending.
    rests: Vec<usize>,
    /// The lowest index of a template at or below this node. A search that has found a lower one skips the node.
    least: usize,
}

/// One segment of the path or template that is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TrieSegment<'a> {
    /// A segment of a path.
    Segment(&'a str),
    /// A variable of a template: any segment that is not empty.
    Any,
    /// A variable of a template with text around it.
    Affixed(&'a AffixedVariable),
    /// The `{rest...}` at the end of a template: all remaining segments.
    Rest,
}

impl<'a> From<&'a PathTemplateSegment> for TrieSegment<'a> {
    fn from(piece: &'a PathTemplateSegment) -> Self {
        match piece {
            PathTemplateSegment::Literal(literal) => Self::Segment(literal),
            PathTemplateSegment::Variable(_) => Self::Any,
            PathTemplateSegment::Affixed(affixed) => Self::Affixed(affixed),
            PathTemplateSegment::Rest(_) => Self::Rest,
        }
    }
}

/// The relation between the templates that a search looks for and the looked-up paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrieRelation {
    /// The template matches every path of the lookup.
    Covering,
    /// The template matches some path of the lookup.
    Meeting,
}

/// The state of one lookup in the tree.
struct TrieSearch<'a, T> {
    tree: &'a RouteTrie,
    parts: &'a [TrieSegment<'a>],
    takes: T,
    sought: TrieRelation,
    /// The lowest index of a template found so far; `usize::MAX` before the first.
    best: usize,
}

impl RouteTrie {
    pub(crate) fn new() -> Self {
        Self { nodes: vec![TrieNode::new(0)] }
    }

    /// Inserts a template. `index` must be larger than all indices before.
    pub(crate) fn insert(&mut self, index: usize, path: &PathTemplate) {
        let mut at = 0;
        for piece in path.pieces() {
            at = match piece {
                PathTemplateSegment::Literal(literal) => self.child(at, Some(literal), index),
                PathTemplateSegment::Variable(_) => self.child(at, None, index),
                PathTemplateSegment::Affixed(affixed) => self.affixed_child(at, affixed, index),
                PathTemplateSegment::Rest(_) => return self.nodes[at].rests.push(index),
            };
        }
        self.nodes[at].ends.push(index);
    }

    /// The first template, among those that `takes` allows, that matches every path of `parts`. For the segments of a
    /// path this is the first template that matches the path; for those of a template, the first one that covers it.
    pub(crate) fn find_covering(
        &self,
        parts: &[TrieSegment],
        takes: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.search(parts, takes, TrieRelation::Covering)
    }

    /// The first template, among those that `takes` allows, that matches some path of `parts`.
    pub(crate) fn find_overlapping(
        &self,
        parts: &[TrieSegment],
        takes: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.search(parts, takes, TrieRelation::Meeting)
    }

    fn search(
        &self,
        parts: &[TrieSegment],
        takes: impl Fn(usize) -> bool,
        sought: TrieRelation,
    ) -> Option<usize> {
        let mut search = TrieSearch { tree: self, parts, takes, sought, best: usize::MAX };
        search.visit(0, 0);
        (search.best != usize::MAX).then_some(search.best)
    }

    /// The child of node `at` for a literal, or for a variable if `literal` is `None`. A missing node is made, with
    /// the lowest index `index`.
    fn child(&mut self, at: usize, literal: Option<&str>, index: usize) -> usize {
        let new = self.nodes.len();
        let node = &mut self.nodes[at];
        let child = match literal {
            Some(literal) => *node.literals.entry(literal.into()).or_insert(new),
            None => *node.variable.get_or_insert(new),
        };
        if child == new {
            self.nodes.push(TrieNode::new(index));
        }
        child
    }

    /// The child of node `at` for a variable with text around it. A missing node is made, with the lowest index
    /// `index`.
    fn affixed_child(&mut self, at: usize, affixed: &AffixedVariable, index: usize) -> usize {
        let known = &mut self.nodes[at].affixed;
        if let Some((_, child)) = known.iter().find(|(known, _)| known.has_same_segments(affixed)) {
            return *child;
        }
        let new = self.nodes.len();
        self.nodes[at].affixed.push((affixed.clone(), new));
        self.nodes.push(TrieNode::new(index));
        new
    }
}

impl TrieNode {
    /// Makes a node. Templates are inserted in ascending order, so the template that makes a node has the lowest
    /// index below it.
    fn new(least: usize) -> Self {
        Self {
            literals: HashMap::new(),
            variable: None,
            affixed: Vec::new(),
            ends: Vec::new(),
            rests: Vec::new(),
            least,
        }
    }

    fn children(&self) -> impl Iterator<Item = usize> {
        let affixed = self.affixed.iter().map(|(_, child)| *child);
        self.literals.values().copied().chain(affixed).chain(self.variable)
    }
}

impl<T: Fn(usize) -> bool> TrieSearch<'_, T> {
    fn visit(&mut self, at: usize, depth: usize) {
        let tree = self.tree;
        let node = &tree.nodes[at];
        if node.least >= self.best {
            return;
        }
        let Some(part) = self.parts.get(depth) else {
            return self.update_best_template(&node.ends);
        };
        self.update_best_template(&node.rests);
        match part {
            TrieSegment::Segment(segment) => {
                if let Some(child) = node.literals.get(*segment) {
                    self.visit(*child, depth + 1);
                }
                for (affixed, child) in &node.affixed {
                    if affixed.value(segment).is_some() {
                        self.visit(*child, depth + 1);
                    }
                }
                if let Some(child) = node.variable.filter(|_| !segment.is_empty()) {
                    self.visit(child, depth + 1);
                }
            }
            TrieSegment::Any => {
                if self.sought == TrieRelation::Meeting {
                    let named = node.literals.iter().filter(|(literal, _)| !literal.is_empty());
                    named.for_each(|(_, child)| self.visit(*child, depth + 1));
                    node.affixed.iter().for_each(|(_, child)| self.visit(*child, depth + 1));
                }
                if let Some(child) = node.variable {
                    self.visit(child, depth + 1);
                }
            }
            TrieSegment::Affixed(theirs) => {
                let meeting = self.sought == TrieRelation::Meeting;
                if meeting {
                    let named = node.literals.iter().filter(|(literal, _)| theirs.value(literal).is_some());
                    named.for_each(|(_, child)| self.visit(*child, depth + 1));
                }
                for (ours, child) in &node.affixed {
                    if if meeting { ours.has_common_segment(theirs) } else { ours.covers(theirs) } {
                        self.visit(*child, depth + 1);
                    }
                }
                if let Some(child) = node.variable {
                    self.visit(child, depth + 1);
                }
            }
            TrieSegment::Rest if self.sought == TrieRelation::Meeting => {
                node.children().for_each(|child| self.visit_subtree(child))
            }
            TrieSegment::Rest => {}
        }
    }

    /// Visits every template at or below a node.
    fn visit_subtree(&mut self, at: usize) {
        let tree = self.tree;
        let node = &tree.nodes[at];
        if node.least >= self.best {
            return;
        }
        self.update_best_template(&node.ends);
        self.update_best_template(&node.rests);
        node.children().for_each(|child| self.visit_subtree(child));
    }

    fn update_best_template(&mut self, templates: &[usize]) {
        let earlier = templates.iter().copied().take_while(|index| *index < self.best);
        if let Some(index) = earlier.into_iter().find(|index| (self.takes)(*index)) {
            self.best = index;
        }
    }
}
