//! The combination of header steps that apply to a request, identified by a number under which prebuilt responses are
//! cached.
//!
//! The steps that a request has passed form a path in a tree, which grows with each new combination. Finding the next
//! node costs one lookup and no allocation. The tree is bounded: at the limit, it is cleared.

use flatout_config::model::FieldOp;
use flatout_handler::routed::HeaderPolicy;
use flatout_os::random::HashState;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Maximum number of combinations in a tree.
const POLICIES_MAX: usize = 1024;

/// Tree of the combinations of header steps used so far, each with its policy.
#[derive(Debug)]
pub(crate) struct Policies {
    nodes: Vec<Rc<HeaderPolicy>>,
    edges: HashMap<(u32, u32), u32, HashState>,
    /// Policies of the previous configuration. Equal policies retain their number, and with it everything cached for
    /// them.
    inherited: Vec<Rc<HeaderPolicy>>,
    ids: Rc<Cell<u32>>,
}

impl Policies {
    pub(crate) fn new(inherited: Vec<Rc<HeaderPolicy>>, ids: Rc<Cell<u32>>) -> Self {
        Self { nodes: vec![Rc::new(HeaderPolicy::default())], edges: HashMap::default(), inherited, ids }
    }

    /// Returns the policy at `node`. The node 0 has the empty policy.
    pub(crate) fn policy(&self, node: u32) -> &Rc<HeaderPolicy> {
        self.nodes.get(node as usize).unwrap_or(&self.nodes[0])
    }

    /// Returns the policies that the next configuration inherits: all policies of this configuration and, up to the
    /// limit, those that it inherited but has not used. A worker that receives no requests between two reloads must
    /// still recognise its policies after both.
    pub(crate) fn bequeath(&self) -> Vec<Rc<HeaderPolicy>> {
        let mut heirs: Vec<Rc<HeaderPolicy>> = Vec::new();
        let mut ids = HashSet::new();
        for policy in self.nodes.iter().chain(&self.inherited) {
            if heirs.len() < POLICIES_MAX && ids.insert(policy.id) {
                heirs.push(Rc::clone(policy));
            }
        }
        heirs
    }

    /// Returns the node that follows `node` for the step `change`, which applies the operations `fields`. Creates it if
    /// necessary.
    #[inline]
    pub(crate) fn extend(&mut self, node: u32, change: u32, fields: &[FieldOp]) -> u32 {
        match self.edges.get(&(node, change)) {
            Some(&next) => next,
            None => self.grow(node, change, fields),
        }
    }

    fn grow(&mut self, node: u32, change: u32, fields: &[FieldOp]) -> u32 {
        let before = Rc::clone(self.policy(node));
        let fields: Rc<[FieldOp]> = before.fields.iter().chain(fields).cloned().collect();
        let known = self.nodes.iter().chain(&self.inherited).find(|policy| policy.fields == fields);
        let policy = known.cloned().unwrap_or_else(|| {
            // Skip 0, which is the number of the empty policy.
            self.ids.set(self.ids.get().wrapping_add(1).max(1));
            Rc::new(HeaderPolicy { id: self.ids.get(), fields })
        });
        if self.nodes.len() >= POLICIES_MAX {
            self.nodes.truncate(1);
            self.edges.clear();
            self.inherited.clear();
            // Do not store the edge, which would start at a dropped node.
            self.nodes.push(policy);
            return 1;
        }
        let next = self.nodes.len() as u32;
        self.nodes.push(policy);
        self.edges.insert((node, change), next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::{POLICIES_MAX, Policies};
    use flatout_config::model::FieldOp;
    use std::cell::Cell;
    use std::rc::Rc;

    fn set(name: &str, value: &str) -> FieldOp {
        FieldOp::set(name.into(), value.into())
    }

    #[test]
    fn one_combination_has_one_number_also_after_a_reload() {
        let ids = Rc::new(Cell::new(0));
        let (a, b) = ([set("A", "1")], [set("B", "2")]);
        let mut policies = Policies::new(Vec::new(), Rc::clone(&ids));
        let ab = policies.extend(0, 0, &a);
        let ab = policies.extend(ab, 1, &b);
        assert_eq!(policies.extend(1, 1, &b), ab);
        let id = policies.policy(ab).id;
        let alone = policies.extend(0, 1, &b);
        assert_ne!(policies.policy(alone).id, id);
        assert_eq!((policies.policy(0).id, policies.policy(ab).fields.len()), (0, 2));
        let mut next = Policies::new(policies.bequeath(), ids);
        let other_way = next.extend(0, 7, &[a[0].clone(), b[0].clone()]);
        assert_eq!(next.policy(other_way).id, id);
        // Without a request in between, nothing is forgotten either.
        let mut after = Policies::new(Policies::new(next.bequeath(), Rc::default()).bequeath(), Rc::default());
        let again = after.extend(0, 3, &[a[0].clone(), b[0].clone()]);
        assert_eq!(after.policy(again).id, id);
    }

    #[test]
    fn the_tree_is_bounded_and_never_wrong() {
        let mut policies = Policies::new(Vec::new(), Rc::default());
        let mut node = 0;
        for change in 0..3 * POLICIES_MAX as u32 {
            let name = change.to_string();
            let next = policies.extend(0, change, &[set(&name, "x")]);
            assert_eq!(*policies.policy(next).fields, [set(&name, "x")]);
            node = policies.extend(next, u32::MAX, &[set("y", "y")]);
            assert_eq!(*policies.policy(node).fields, [set(&name, "x"), set("y", "y")]);
            assert!(policies.nodes.len() <= POLICIES_MAX && policies.bequeath().len() <= POLICIES_MAX);
        }
        assert!(policies.policy(node).id > 2 * POLICIES_MAX as u32);
    }
}
