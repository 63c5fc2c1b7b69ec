//! The context of an insertion in a script: code, a string, or unknown.
//!
//! JavaScript cannot be tokenized without parsing it, because whether `/` is a division or begins a regular expression
//! depends on everything before it. The preceding token decides where possible; after `)`, the token before the
//! matching `(` decides. Where neither decides, as after `}`, both alternatives are followed as long as they agree.
//! Where they diverge, or where branches differ, the rest of the script accepts no insertions. The cost of this is an
//! error message, never a wrong escaper.

/// The language of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    JavaScript,
    /// `application/json` and similar types.
    Json,
    /// A type that browsers do not run or interpret differently, such as import maps.
    Other,
}

impl Language {
    /// Returns the language of a script element with this `type`.
    pub(super) fn of_type(value: &[u8]) -> Self {
        let value = value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let value = value.to_ascii_lowercase();
        match &value[..] {
            b""
            | b"module"
            | b"text/javascript"
            | b"application/javascript"
            | b"text/ecmascript"
            | b"application/ecmascript"
            | b"application/x-javascript"
            | b"text/x-javascript" => Self::JavaScript,
            b"application/json" | b"text/json" | b"application/ld+json" => Self::Json,
            _ => Self::Other,
        }
    }
}

/// The state of a script up to a position in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    language: Language,
    state: ScriptState,
    /// The kind of token that may follow the last token in code.
    behind: Behind,
    /// The first characters of the current word in code.
    word: Word,
    /// True if the word follows a `.`, so that it is not a keyword.
    dotted: bool,
    /// True if a `/` on this line may be either a division or the beginning of a regular expression.
    either: bool,
    /// The last two characters in code, to recognise `++`, `--` and comments.
    last: [char; 2],
    /// True if the last word takes parentheses: in `if (a) /b/`, `/b/` is a regular expression.
    head: bool,
    /// The open brackets.
    open: Vec<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Brace,
    /// The `${` of a template literal.
    Template,
    /// A `(`; true if it follows a word such as `if`.
    Parenthesis(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptState {
    Code,
    /// After a `/` in code.
    Slash,
    /// A string with this quote; true directly after a backslash.
    Text(char, bool),
    Template(TemplateLiteral),
    LineComment,
    /// True directly after a `*`.
    BlockComment(bool),
    /// The first value is true inside brackets, the second directly after a backslash.
    Regex(bool, bool),
    Unclear(Unclear),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplateLiteral {
    Plain,
    Backslash,
    Dollar,
}

/// The reason why the rest of a script is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unclear {
    Branches,
    Slash,
    Syntax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// Operator position, where a `/` is a division.
    Operator,
    /// Operand position, where a `/` begins a regular expression.
    Operand,
    /// Either an operator or an operand may follow.
    Either,
}

/// The first characters of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    bytes: [u8; 12],
    length: u8,
}

impl Word {
    fn push(&mut self, character: char) {
        let byte = if character.is_ascii() { character as u8 } else { b'x' };
        if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
            *place = byte;
            self.length += 1;
        } else {
            // The word is longer than any keyword. Of a number, only that it is a number matters.
            self.bytes[1] = b'x';
        }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn begins_number(&self) -> bool {
        self.length > 0 && self.bytes[0].is_ascii_digit()
    }
}

/// The kind of insertion allowed at a position in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertionKind {
    Value,
    /// Characters inside a quoted string.
    Text,
    /// No insertion is allowed. The string completes "the insertion is …".
    None(&'static str),
}

/// Maximum number of open braces and parentheses.
const OPEN_MAX: usize = 256;

impl Script {
    pub(super) fn new(language: Language) -> Self {
        Self {
            language,
            state: ScriptState::Code,
            behind: Behind::Operand,
            word: Word::default(),
            dotted: false,
            either: false,
            last: ['\n'; 2],
            head: false,
            open: Vec::new(),
        }
    }

    pub(super) fn language(&self) -> Language {
        self.language
    }

    /// Marks the rest of the script as ambiguous.
    pub(super) fn give_up(&mut self) {
        self.state = ScriptState::Unclear(Unclear::Syntax);
    }

    /// Returns what an insertion may be at this position.
    pub(super) fn place(&self) -> InsertionKind {
        if self.language == Language::Other {
            return InsertionKind::None("in a script that is not JavaScript or JSON");
        }
        match self.state {
            ScriptState::Code if self.either => {
                InsertionKind::None("after a `/` that may be a division or begin a regular expression")
            }
            ScriptState::Code if self.word.length > 0 => InsertionKind::None("directly after a name or a number"),
            ScriptState::Code => InsertionKind::Value,
            ScriptState::Slash if self.behind() == Behind::Operator => InsertionKind::Value,
            ScriptState::Slash => {
                InsertionKind::None("after a `/` that may be a division or begin a regular expression")
            }
            ScriptState::Text(_, false) => InsertionKind::Text,
            ScriptState::Text(_, true) => InsertionKind::None("after a backslash"),
            ScriptState::Template(_) => InsertionKind::None("in the text of a template literal"),
            ScriptState::LineComment | ScriptState::BlockComment(_) => InsertionKind::None("in a comment of a script"),
            ScriptState::Regex(..) => InsertionKind::None("in a regular expression"),
            ScriptState::Unclear(Unclear::Branches) => {
                InsertionKind::None("after branches that end in different contexts of the script")
            }
            ScriptState::Unclear(Unclear::Slash) => {
                InsertionKind::None("after a `/` that follows `}` and may be a division or begin a regular expression")
            }
            ScriptState::Unclear(Unclear::Syntax) => InsertionKind::None("in a script that is too complex to analyze"),
        }
    }

    /// Advances by an insertion, which [`Script::place`] has allowed.
    pub(super) fn insert(&mut self) {
        if matches!(self.state, ScriptState::Code | ScriptState::Slash) {
            self.state = ScriptState::Code;
            self.behind = Behind::Operator;
            self.word = Word::default();
            self.dotted = false;
            self.last = ['0'; 2];
        }
    }

    /// Returns the state after two branches.
    #[must_use]
    pub(super) fn join(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        let mut joined = self.clone();
        if (self.state, &self.open, self.language) != (other.state, &other.open, other.language) {
            joined.state = ScriptState::Unclear(Unclear::Branches);
        }
        if self.behind() == other.behind() {
            joined.behind = self.behind();
        } else {
            joined.behind = Behind::Either;
        }
        // If only one branch ends in a word, an insertion is still not allowed directly after it.
        if self.word != other.word {
            joined.word = Word::default();
            joined.word.push('\0');
        }
        joined.head |= other.head;
        joined.either |= other.either;
        joined.dotted |= other.dotted;
        if self.last != other.last {
            // This is the strictest assumption for whatever follows.
            joined.last = ['\n'; 2];
            if joined.state == ScriptState::Code && (self.last.contains(&'-') || other.last.contains(&'-')) {
                joined.state = ScriptState::Unclear(Unclear::Branches);
            }
        }
        joined
    }

    /// Returns the kind of token that may follow the last token, taking keywords into account.
    fn behind(&self) -> Behind {
        if self.word.length == 0 {
            return self.behind;
        }
        if self.dotted {
            return Behind::Operator;
        }
        match self.word.text() {
            b"return" | b"typeof" | b"case" | b"do" | b"else" | b"in" | b"instanceof" | b"new" | b"delete"
            | b"void" | b"throw" | b"extends" => Behind::Operand,
            b"of" | b"yield" | b"await" | b"default" | b"let" | b"static" | b"async" | [0, ..] => Behind::Either,
            _ => Behind::Operator,
        }
    }

    /// Advances by a literal character.
    pub(super) fn advance(&mut self, character: char) {
        if self.language == Language::Other {
            return;
        }
        let is_line_end = matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}');
        match self.state {
            ScriptState::Code => self.code(character),
            ScriptState::Slash => self.slash(character),
            ScriptState::Text(quote, true) => self.state = ScriptState::Text(quote, false),
            ScriptState::Text(quote, false) => {
                if character == '\\' {
                    self.state = ScriptState::Text(quote, true);
                } else if character == quote {
                    self.operand();
                } else if matches!(character, '\n' | '\r') {
                    self.give_up();
                }
            }
            ScriptState::Template(template) => self.template(template, character),
            ScriptState::LineComment if is_line_end => self.back_to_code(character),
            ScriptState::BlockComment(true) if character == '/' => self.back_to_code(' '),
            ScriptState::BlockComment(_) => self.state = ScriptState::BlockComment(character == '*'),
            ScriptState::Regex(bracket, true) if !is_line_end => self.state = ScriptState::Regex(bracket, false),
            ScriptState::Regex(..) if is_line_end => self.give_up(),
            ScriptState::Regex(bracket, _) => match character {
                '\\' => self.state = ScriptState::Regex(bracket, true),
                '[' => self.state = ScriptState::Regex(true, false),
                ']' => self.state = ScriptState::Regex(false, false),
                '/' if !bracket => self.operand(),
                _ => {}
            },
            ScriptState::LineComment | ScriptState::Unclear(_) => {}
        }
    }

    /// Handles the end of a string, a template literal or a regular expression.
    fn operand(&mut self) {
        self.state = ScriptState::Code;
        self.behind = Behind::Operator;
        self.word = Word::default();
        self.dotted = false;
        self.last = ['0'; 2];
    }

    /// Handles the end of a comment. The token before the comment is still the last token.
    fn back_to_code(&mut self, character: char) {
        self.state = ScriptState::Code;
        self.code(character);
    }

    fn template(&mut self, template: TemplateLiteral, character: char) {
        self.state = ScriptState::Template(match (template, character) {
            (TemplateLiteral::Backslash, _) => TemplateLiteral::Plain,
            (_, '\\') => TemplateLiteral::Backslash,
            (_, '`') => return self.operand(),
            (TemplateLiteral::Dollar, '{') => {
                self.state = ScriptState::Code;
                self.behind = Behind::Operand;
                self.word = Word::default();
                self.last = ['{'; 2];
                return self.push(Open::Template);
            }
            (_, '$') => TemplateLiteral::Dollar,
            _ => TemplateLiteral::Plain,
        });
    }

    fn push(&mut self, open: Open) {
        if self.open.len() == OPEN_MAX {
            self.give_up();
        } else {
            self.open.push(open);
        }
    }

    fn slash(&mut self, character: char) {
        match character {
            '/' => self.state = ScriptState::LineComment,
            '*' => self.state = ScriptState::BlockComment(false),
            _ => match self.behind() {
                Behind::Operand => {
                    self.state = ScriptState::Regex(false, false);
                    self.word = Word::default();
                    self.advance(character);
                }
                behind => {
                    self.either |= behind == Behind::Either;
                    self.state = ScriptState::Code;
                    self.mark('/');
                    self.code(character);
                }
            },
        }
    }

    fn mark(&mut self, character: char) {
        self.head = false;
        self.word = Word::default();
        self.dotted = character == '.';
        self.last = [self.last[1], character];
        self.behind = Behind::Operand;
    }

    fn code(&mut self, character: char) {
        if self.language == Language::Json {
            match character {
                '"' => self.state = ScriptState::Text('"', false),
                '\'' | '`' | '/' => self.give_up(),
                // This only determines whether a value is possible here. JSON parsers check the rest.
                _ => {}
            }
            return;
        }
        match character {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => {
                self.either = false;
                self.end_word();
                self.last = ['\n'; 2];
            }
            _ if character.is_whitespace() || character == '\u{feff}' => self.end_word(),
            '"' | '\'' | '`' | '/' | '{' | '}' | '[' | ']' if self.either => {
                // The two alternatives diverge here.
                self.state = ScriptState::Unclear(Unclear::Slash);
            }
            '"' | '\'' => {
                self.end_word();
                self.state = ScriptState::Text(character, false);
            }
            '`' => {
                self.end_word();
                self.state = ScriptState::Template(TemplateLiteral::Plain);
            }
            '/' => self.state = ScriptState::Slash,
            '{' => {
                self.mark('{');
                self.push(Open::Brace);
            }
            '}' => {
                self.mark('}');
                self.behind = Behind::Either;
                match self.open.pop() {
                    Some(Open::Template) => self.state = ScriptState::Template(TemplateLiteral::Plain),
                    Some(Open::Parenthesis(_)) => self.give_up(),
                    _ => {}
                }
            }
            '(' => {
                self.end_word();
                let head = self.head;
                self.mark('(');
                self.push(Open::Parenthesis(head));
            }
            ')' => {
                self.mark(')');
                match self.open.pop() {
                    Some(Open::Parenthesis(true)) => {}
                    Some(Open::Parenthesis(false)) => self.behind = Behind::Operator,
                    _ => self.give_up(),
                }
            }
            ']' => {
                self.mark(']');
                self.behind = Behind::Operator;
            }
            '>' if self.last == ['-'; 2] => self.give_up(), // `-->` is a comment where a line begins
            '-' if self.last == ['<', '!'] => self.give_up(),
            '!' if self.last == ['\n', '#'] => self.give_up(), // a comment at the very beginning
            '+' | '-' => {
                let twice = self.last[1] == character;
                self.mark(character);
                if twice {
                    self.behind = Behind::Either;
                }
            }
            '.' if self.word.begins_number() => self.word.push('.'),
            // An escape in a name could produce a keyword.
            '\\' => self.give_up(),
            _ if character.is_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii() => {
                if self.word.length == 0 {
                    self.head = false;
                    self.behind = Behind::Operator;
                    self.last = ['0'; 2];
                }
                self.word.push(character);
            }
            _ => self.mark(character),
        }
    }

    /// Handles the end of a word, and stores the kind of token that may follow it.
    fn end_word(&mut self) {
        if self.word.length > 0 {
            self.behind = self.behind();
            // This includes `for await (`.
            self.head = !self.dotted && matches!(self.word.text(), b"if" | b"while" | b"for" | b"with" | b"await");
            self.word = Word::default();
            self.dotted = false;
        }
    }
}
