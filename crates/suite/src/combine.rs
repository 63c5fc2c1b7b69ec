//! The variables of a step, and the combinations of their values.

use crate::model::{Placed, Server, Step, Suite, Variable};
use crate::template;

/// Names and values of variables, in the order of the suite's variables.
pub type Values = Vec<(String, String)>;

/// Returns a server and all servers that it needs: those in its `after`, and those that its settings name. Each appears
/// once, after the servers that it needs itself.
pub fn needed<'s>(suite: &'s Suite, name: &str) -> Vec<&'s Server> {
    let mut found = Vec::new();
    need(suite, name, &mut Vec::new(), &mut found);
    found
}

fn need<'s>(suite: &'s Suite, name: &str, open: &mut Vec<String>, found: &mut Vec<&'s Server>) {
    let Some(server) = suite.server(name) else { return };
    // Servers may name one another's ports in a cycle. Each is started once.
    if open.iter().any(|other| other == name) || found.iter().any(|other| other.name == name) {
        return;
    }
    open.push(name.to_owned());
    for other in &server.after {
        need(suite, &other.text, open, found);
    }
    for text in texts_of(server) {
        for name in template::names(&text.text).filter_map(|name| name.of) {
            need(suite, name, open, found);
        }
    }
    found.push(server);
}

/// Returns the settings of a server whose placeholders are replaced when it starts.
pub fn texts_of(server: &Server) -> impl Iterator<Item = &Placed> {
    server
        .configs
        .iter()
        .map(|config| &config.content)
        .chain(&server.start)
        .chain(server.environment.iter().map(|(_, value)| value))
        .chain(server.values.iter().map(|(_, value)| value))
        .chain(server.ready.path.iter())
        .chain(server.ready.socket.iter())
}

/// Returns the settings of a step itself that may contain placeholders.
fn texts_of_step<'s>(suite: &'s Suite, step: &'s Step) -> Vec<&'s Placed> {
    let mut texts: Vec<&Placed> = vec![&step.path];
    texts.extend(step.paths.iter().map(|(_, path)| path));
    texts.extend(step.first.iter().chain(&step.bench));
    texts.extend(step.clients.iter().flat_map(|client| &client.arguments));
    texts.extend(step.expect.iter().flat_map(|expect| expect.file.iter().chain(&expect.send)));
    texts.extend(step.takes.iter().map(|take| &take.times));
    if let Some(testbed) = step.testbed.as_ref().and_then(|name| suite.testbed(&name.text)) {
        texts.extend([&testbed.mtu, &testbed.rate, &testbed.delay, &testbed.cpu].into_iter().flatten());
        texts.extend(&testbed.sysctls);
    }
    texts
}

/// Returns all servers that run during a step. Each appears after the servers that it needs.
pub fn servers_of<'s>(suite: &'s Suite, step: &Step) -> Vec<&'s Server> {
    let mut found: Vec<&Server> = Vec::new();
    let named =
        texts_of_step(suite, step).into_iter().flat_map(|text| template::names(&text.text)).filter_map(|name| name.of);
    for name in step.servers.iter().map(|server| server.text.as_str()).chain(named) {
        for server in needed(suite, name) {
            if !found.iter().any(|other| other.name == server.name) {
                found.push(server);
            }
        }
    }
    found
}

/// Returns the variables of a step: those that its own settings or the settings of its servers name.
pub fn variables_of<'s>(suite: &'s Suite, step: &Step) -> Vec<&'s Variable> {
    let servers = servers_of(suite, step);
    let texts: Vec<&Placed> =
        texts_of_step(suite, step).into_iter().chain(servers.iter().flat_map(|server| texts_of(server))).collect();
    let is_named = |variable: &&Variable| {
        texts.iter().any(|text| template::names(&text.text).any(|name| name.of.is_none() && name.name == variable.name))
    };
    suite.variables.iter().filter(is_named).collect()
}

/// Returns the values of a variable that this run uses.
pub fn values_of<'s>(suite: &'s Suite, variable: &'s Variable, quick: bool) -> &'s [String] {
    let kept = suite.quick.keep.iter().find(|kept| quick && kept.name == variable.name);
    kept.map_or(&variable.values, |kept| &kept.values)
}

/// Returns all combinations of the values of a step's variables. The last variable changes fastest. A step without
/// variables has one combination, which is empty.
pub fn combinations(suite: &Suite, step: &Step, quick: bool) -> Vec<Values> {
    let mut combinations: Vec<Values> = vec![Vec::new()];
    for variable in variables_of(suite, step) {
        let values = values_of(suite, variable, quick);
        combinations = combinations
            .iter()
            .flat_map(|combination| {
                values.iter().map(move |value| {
                    let mut longer = combination.clone();
                    longer.push((variable.name.clone(), value.clone()));
                    longer
                })
            })
            .collect();
    }
    combinations
}
