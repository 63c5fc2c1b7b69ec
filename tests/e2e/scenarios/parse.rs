//! Parses the lines of a scenario.

use super::Failure;
use super::condition::parse_condition;
use super::script::{Action, Exchange, Expect, Head, Item, Launch, Scenario, Step, Times, Turn};
use super::text::{Block, parse_content, parse_duration};

/// Parses the blocks of a scenario, after the names in braces have been replaced.
pub(crate) fn parse_scenario(blocks: &[Block]) -> Result<Scenario, Failure> {
    let (mut launch, mut turns, mut steps) = (None, Vec::new(), Vec::new());
    for block in blocks {
        let words: Vec<&str> = block.text.split_whitespace().collect();
        let step = match words.as_slice() {
            ["accelerate", flags @ ..] => {
                launch = Some(parse_launch(block, flags)?);
                continue;
            }
            ["origin", words @ ..] => {
                turns.push(parse_turn(block, words)?);
                continue;
            }
            ["client", words @ ..] => Step::Client(parse_exchange(block, 1, false, words)?),
            ["background", "client", words @ ..] => Step::Client(parse_exchange(block, 1, true, words)?),
            ["clients", count, words @ ..] => {
                Step::Client(parse_exchange(block, number(block.line, count)?, false, words)?)
            }
            ["background", "clients", count, words @ ..] => {
                Step::Client(parse_exchange(block, number(block.line, count)?, true, words)?)
            }
            ["release"] => Step::Release(String::new()),
            ["release", name] => Step::Release((*name).to_owned()),
            ["await", count, "request" | "requests"] => Step::Await(number(block.line, count)?),
            ["wait", duration] => {
                let duration = parse_duration(duration);
                Step::Wait(duration.ok_or_else(|| Failure::at(block.line, "it is `wait 250ms` or `wait 1s`"))?)
            }
            ["join"] => Step::Join,
            ["flatout", arguments @ ..] => {
                let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
                Step::Command(arguments, parse_expects(block)?)
            }
            ["restart"] => Step::Restart("TERM"),
            ["kill"] => Step::Restart("KILL"),
            _ => return Err(Failure::at(block.line, format!("no block begins so: {}", block.text))),
        };
        if !block.lines.is_empty() && !matches!(step, Step::Client(_) | Step::Command(..)) {
            return Err(Failure::at(block.line, "nothing can be set in below this line"));
        }
        steps.push((block.line, step));
    }
    let launch = launch.ok_or_else(|| Failure::at(1, "no line says `accelerate`"))?;
    Ok(Scenario { launch, turns, steps })
}

fn number<T: std::str::FromStr>(line: usize, word: &str) -> Result<T, Failure> {
    word.parse().map_err(|_| Failure::at(line, format!("{word} is not a number")))
}

fn parse_launch(block: &Block, flags: &[&str]) -> Result<Launch, Failure> {
    if block.lines.is_empty() {
        return Ok(Launch::Verb(flags.iter().map(|flag| (*flag).to_owned()).collect()));
    }
    if !flags.is_empty() {
        return Err(Failure::at(block.line, "either arguments or settings"));
    }
    Ok(Launch::Site(block.lines.iter().map(|(_, line)| format!("{line}\n")).collect()))
}

fn parse_expects(block: &Block) -> Result<Vec<Expect>, Failure> {
    let mut expects = Vec::new();
    for (line, text) in &block.lines {
        let Some(rest) = text.strip_prefix("expect ") else {
            return Err(Failure::at(*line, "only `expect` can stand here"));
        };
        expects.push(parse_condition(*line, rest)?);
    }
    Ok(expects)
}

/// Parses `origin [NAME] METHOD TARGET [N times | any times | at most N times]`.
fn parse_turn(block: &Block, words: &[&str]) -> Result<Turn, Failure> {
    let (origin, words) = match words {
        [name, rest @ ..] if name.starts_with(|c: char| c.is_ascii_lowercase()) => (*name, rest),
        _ => ("origin", words),
    };
    let [methods, target, rest @ ..] = words else {
        return Err(Failure::at(block.line, "it is `origin METHOD TARGET`"));
    };
    let times = match rest {
        [] => Times::Exactly(1),
        ["any", "times"] => Times::Any,
        ["at", "most", count, "time" | "times"] => Times::AtMost(number(block.line, count)?),
        [count, "time" | "times"] => Times::Exactly(number(block.line, count)?),
        _ => {
            return Err(Failure::at(
                block.line,
                "behind the target stands `3 times`, `any times` or `at most 3 times`",
            ));
        }
    };
    let mut turn = Turn {
        line: block.line,
        origin: origin.to_owned(),
        methods: methods.split('|').map(str::to_owned).collect(),
        target: (*target).to_owned(),
        times,
        early: false,
        conditions: Vec::new(),
        expects: Vec::new(),
        actions: Vec::new(),
    };
    let mut message = Message::default();
    for (line, text) in &block.lines {
        if let Some(rest) = text.strip_prefix("expect ") {
            turn.expects.push(parse_condition(*line, rest)?);
        } else if let Some(rest) = text.strip_prefix("when ") {
            turn.conditions.push(parse_condition(*line, rest)?);
        } else if text == "early" {
            turn.early = true;
        } else if let Some(status) = text.strip_prefix("answer ").or_else(|| text.strip_prefix("interim ")) {
            message.begin(response_head(*line, status)?);
        } else {
            message.add_line(*line, text)?;
        }
    }
    turn.actions = message.finish().into_iter().filter_map(Item::into_action).collect();
    Ok(turn)
}

/// Parses `200` or `200 Fine`.
fn response_head(line: usize, status: &str) -> Result<Head, Failure> {
    let (code, phrase) = status.split_once(' ').unwrap_or((status, ""));
    let status = number(line, code)?;
    let phrase = if phrase.is_empty() { phrase_of(status) } else { phrase };
    Ok(Head { start: format!("HTTP/1.1 {code} {phrase}"), status, ..Head::default() })
}

fn phrase_of(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "Some Phrase",
    }
}

/// Parses `METHOD TARGET [VERSION]`, or `raw`.
fn parse_exchange(block: &Block, clients: usize, background: bool, words: &[&str]) -> Result<Exchange, Failure> {
    let (method, version, target) = match words {
        ["raw"] => (None, "", ""),
        [method, target] => (Some(*method), "HTTP/1.1", *target),
        [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] => (Some(*method), *version, *target),
        _ => return Err(Failure::at(block.line, "it is `client METHOD TARGET` or `client raw`")),
    };
    let mut message = Message::default();
    if let Some(method) = method {
        message.begin(Head { start: format!("{method} {target} {version}"), ..Head::default() });
    }
    let mut exchange = Exchange {
        line: block.line,
        clients,
        background,
        same_connection: false,
        method: method.map(str::to_owned),
        items: Vec::new(),
    };
    for (line, text) in &block.lines {
        let words: Vec<&str> = text.split_whitespace().collect();
        let item = match words.as_slice() {
            ["expect", ..] => Item::Expect(parse_condition(*line, text["expect ".len()..].trim_start())?),
            ["same", "connection"] => {
                exchange.same_connection = true;
                continue;
            }
            ["continue"] => Item::Continue,
            ["finish"] => Item::Finish,
            ["leave"] => Item::Leave(0),
            ["leave", "after", count, "bytes"] => Item::Leave(number(*line, count)?),
            ["stop", "reading", "after", count, "bytes"] => Item::StopReading(number(*line, count)?),
            _ => {
                message.add_line(*line, text)?;
                continue;
            }
        };
        message.items.push(item);
    }
    exchange.items = message.finish();
    Ok(exchange)
}

/// The parts of one or several messages. Each head records which content follows.
#[derive(Default)]
struct Message {
    items: Vec<Item>,
    /// Index of the head that fields and content belong to.
    head: Option<usize>,
    /// Index where the content ends so far.
    content_end: Option<usize>,
    trailers: Vec<(String, String)>,
    /// True if the content is truncated intentionally.
    is_cut: bool,
}

impl Message {
    fn begin(&mut self, head: Head) {
        self.end_content();
        self.head = Some(self.items.len());
        self.items.push(Item::Act(Action::Head(head)));
    }

    fn head_mut(&mut self) -> Option<&mut Head> {
        match self.items.get_mut(self.head?) {
            Some(Item::Act(Action::Head(head))) => Some(head),
            _ => None,
        }
    }

    fn add_line(&mut self, line: usize, text: &str) -> Result<(), Failure> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let content = |rest: &str| parse_content(rest).map_err(|why| Failure::at(line, why));
        let action = match (word, rest) {
            ("body", rest) => {
                let bytes = content(rest)?;
                let Some(head) = self.head_mut() else {
                    return Err(Failure::at(line, "content without a head before it"));
                };
                head.content_bytes = Some(head.content_bytes.unwrap_or(0) + bytes.len());
                self.content_end = Some(self.items.len() + 1);
                Action::Body(bytes)
            }
            ("send", rest) => Action::Send(content(rest)?),
            ("receive", rest) => Action::Receive(content(rest)?),
            ("pause", rest) => {
                let duration = parse_duration(rest);
                Action::Pause(duration.ok_or_else(|| Failure::at(line, "it is `pause 250ms`"))?)
            }
            ("hold", name) => Action::Hold(name.to_owned()),
            ("close", "") => self.cut(Action::Close),
            ("reset", "") => self.cut(Action::Reset),
            ("stall", "") => self.cut(Action::Stall),
            ("trailer", rest) => {
                let trailer = rest.split_once(": ").ok_or_else(|| Failure::at(line, "it is `trailer Name: value`"))?;
                self.trailers.push((trailer.0.to_owned(), trailer.1.to_owned()));
                return Ok(());
            }
            ("without", name) => {
                let head = self.head_mut().ok_or_else(|| Failure::at(line, "there is no head before it"))?;
                head.without.push(name.to_owned());
                return Ok(());
            }
            _ => return self.add_field(line, text),
        };
        self.items.push(Item::Act(action));
        Ok(())
    }

    fn add_field(&mut self, line: usize, text: &str) -> Result<(), Failure> {
        let field = text.split_once(':').filter(|(name, _)| !name.contains(' '));
        let Some((name, value)) = field else {
            return Err(Failure::at(line, format!("what is this? {text}")));
        };
        let Some(head) = self.head_mut() else {
            return Err(Failure::at(line, "a field without a head before it"));
        };
        head.fields.push((name.to_owned(), value.trim().to_owned()));
        Ok(())
    }

    fn cut(&mut self, action: Action) -> Action {
        self.is_cut = true;
        action
    }

    /// Records that the content is complete at this point.
    fn end_content(&mut self) {
        let Some(at) = self.head else { return };
        let trailers = std::mem::take(&mut self.trailers);
        let is_cut = std::mem::take(&mut self.is_cut);
        let end = self.content_end.take().unwrap_or(at + 1);
        let is_interim = matches!(&self.items[at], Item::Act(Action::Head(head)) if head.is_interim());
        if !is_cut && !is_interim {
            self.items.insert(end, Item::Act(Action::End(trailers)));
        }
        self.head = None;
    }

    fn finish(mut self) -> Vec<Item> {
        self.end_content();
        self.items
    }
}
