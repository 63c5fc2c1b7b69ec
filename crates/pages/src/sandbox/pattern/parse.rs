//! Parsing of string patterns.

use super::{CAPTURES_MAX, Item, PATTERN_BYTES_MAX, Pattern, Repeat, Set};

/// The captures so far: their number, and those that are still open.
#[derive(Default)]
struct Captures {
    count: usize,
    open: Vec<u8>,
}

impl Captures {
    fn add(&mut self) -> Result<u8, String> {
        if self.count == CAPTURES_MAX {
            return Err("too many captures".to_owned());
        }
        self.count += 1;
        Ok((self.count - 1) as u8)
    }
}

pub(super) fn parse(text: &[u8], anchors: bool) -> Result<Pattern, String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("pattern too long (at most {PATTERN_BYTES_MAX} bytes)"));
    }
    let anchored = anchors && text.first() == Some(&b'^');
    let mut rest = &text[usize::from(anchored)..];
    let mut items = Vec::with_capacity(rest.len().min(64));
    let mut captures = Captures::default();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let single = match byte {
            b'(' if rest.first() == Some(&b')') => {
                rest = &rest[1..];
                captures.add()?;
                items.push(Item::Position);
                continue;
            }
            b'(' => {
                let number = captures.add()?;
                captures.open.push(number);
                items.push(Item::Open);
                continue;
            }
            b')' => {
                items.push(Item::Close(captures.open.pop().ok_or("invalid pattern capture")?));
                continue;
            }
            b'$' if rest.is_empty() => {
                items.push(Item::End);
                continue;
            }
            b'%' => match escaped(&mut rest, &captures)? {
                Escaped::Item(item) => {
                    items.push(item);
                    continue;
                }
                Escaped::Single(single) => single,
            },
            b'[' => Single::OneOf(bracket(&mut rest)?),
            b'.' => Single::Any,
            _ => Single::Byte(byte),
        };
        let repeat = repeat(&mut rest);
        items.push(match single {
            Single::Byte(byte) => Item::Byte(byte, repeat),
            Single::Any => Item::Any(repeat),
            Single::OneOf(set) => Item::OneOf(Box::new(set), repeat),
        });
    }
    if !captures.open.is_empty() {
        return Err("unfinished capture".to_owned());
    }
    Ok(Pattern { items, anchored })
}

enum Single {
    Byte(u8),
    Any,
    OneOf(Set),
}

enum Escaped {
    Single(Single),
    Item(Item),
}

/// Parses what follows a percent sign.
fn escaped(rest: &mut &[u8], captures: &Captures) -> Result<Escaped, String> {
    let (&letter, after) = rest.split_first().ok_or("malformed pattern (ends with '%')")?;
    *rest = after;
    Ok(match letter {
        b'b' => {
            let [first, last, after @ ..] = *rest else {
                return Err("malformed pattern (missing arguments to '%b')".to_owned());
            };
            let item = Item::Balance(*first, *last);
            *rest = after;
            Escaped::Item(item)
        }
        b'f' => {
            let Some((b'[', after)) = rest.split_first() else {
                return Err("missing '[' after '%f' in pattern".to_owned());
            };
            *rest = after;
            Escaped::Item(Item::Frontier(Box::new(bracket(rest)?)))
        }
        b'0'..=b'9' => {
            let number = letter.wrapping_sub(b'1');
            if usize::from(number) >= captures.count || captures.open.contains(&number) {
                return Err(format!("invalid capture index %{}", char::from(letter)));
            }
            Escaped::Item(Item::Back(number))
        }
        _ => Escaped::Single(Set::class(letter).map_or(Single::Byte(letter), Single::OneOf)),
    })
}

/// Parses what follows an opening bracket, up to and including the closing bracket. If the first member is a closing
/// bracket, it is literal.
fn bracket(rest: &mut &[u8]) -> Result<Set, String> {
    const UNENDED: &str = "malformed pattern (missing ']')";
    let negated = rest.first() == Some(&b'^');
    let body = &rest[usize::from(negated)..];
    let mut end = 0;
    loop {
        let byte = *body.get(end).ok_or(UNENDED)?;
        end += 1;
        if byte == b'%' && end < body.len() {
            end += 1;
        }
        if body.get(end) == Some(&b']') {
            break;
        }
    }
    let members = &body[..end];
    *rest = &body[end + 1..];
    let mut set = Set::default();
    let mut at = 0;
    while at < members.len() {
        match (members[at], members.get(at + 1), members.get(at + 2)) {
            (b'%', Some(&letter), _) => {
                match Set::class(letter) {
                    Some(class) => set.add_all(&class),
                    None => set.add(letter),
                }
                at += 2;
            }
            (first, Some(b'-'), Some(&last)) => {
                set.add_range(first, last);
                at += 3;
            }
            (byte, ..) => {
                set.add(byte);
                at += 1;
            }
        }
    }
    if negated {
        set.invert();
    }
    Ok(set)
}

fn repeat(rest: &mut &[u8]) -> Repeat {
    let repeat = match rest.first() {
        Some(b'?') => Repeat::Optional,
        Some(b'*') => Repeat::Most,
        Some(b'+') => Repeat::MostFromOne,
        Some(b'-') => Repeat::Least,
        _ => return Repeat::Once,
    };
    *rest = &rest[1..];
    repeat
}
