//! Where in a script an insertion stands: in code, in a text, or where none can be told.
//!
//! JavaScript cannot be followed without parsing it, for `/` divides or begins a regular expression, depending on all
//! that stands in front. Where the token in front tells, it is followed; behind `)`, what stands in front of its `(`.
//! Where neither does, behind `}`, both readings go on as long as they agree; from where they do not, and wherever branches differ, the rest of the script
//! takes no insertion. What this costs is an error message, never a wrong escaper.

/// The language of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    JavaScript,
    /// `application/json` and its like.
    Json,
    /// What browsers do not run, or what they take orders from, as import maps.
    Other,
}

impl Language {
    /// The language of a script element by its `type`.
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

/// How far a script has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    language: Language,
    state: State,
    /// What the last token in code needs behind it.
    behind: Behind,
    /// The word being read in code, its first characters.
    word: Word,
    /// Whether a `.` stands in front of the word, so that it is no keyword.
    dotted: bool,
    /// A `/` divided here, or began a regular expression, and the line has not ended.
    either: bool,
    /// The last two characters in code, for `++`, `--` and comments.
    last: [char; 2],
    /// Whether the last word is one whose parentheses are a head: `if (a) /b/` has a regular expression.
    head: bool,
    /// What is open.
    open: Vec<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Brace,
    /// `${` of a template literal.
    Template,
    /// `(`; whether it opens a head.
    Parenthesis(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    /// Behind a `/` in code.
    Slash,
    /// A string, by its quote; whether a backslash stands in front.
    Text(char, bool),
    Template(Template),
    LineComment,
    /// Whether a `*` stands in front.
    BlockComment(bool),
    /// Whether within brackets, and whether a backslash stands in front.
    Regex(bool, bool),
    Unclear(Unclear),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Template {
    Plain,
    Backslash,
    Dollar,
}

/// Why a script can be followed no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unclear {
    Branches,
    Slash,
    Syntax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// A `/` divides.
    Operator,
    /// A `/` begins a regular expression.
    Operand,
    /// Either.
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
            // Longer than any keyword; of a number, only that it is one is kept.
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

/// What an insertion is at a place of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Value,
    /// Within a string in quotes.
    Text,
    /// None; the text completes "the insertion stands …".
    None(&'static str),
}

/// Braces and parentheses open at a time.
const OPEN_MAX: usize = 256;

impl Script {
    pub(super) fn new(language: Language) -> Self {
        Self {
            language,
            state: State::Code,
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

    /// What was written cannot be told.
    pub(super) fn give_up(&mut self) {
        self.state = State::Unclear(Unclear::Syntax);
    }

    /// Where an insertion would stand.
    pub(super) fn place(&self) -> Place {
        if self.language == Language::Other {
            return Place::None("in a script that is not JavaScript or JSON");
        }
        match self.state {
            State::Code if self.either => Place::None("behind a `/` that divides, or begins a regular expression"),
            State::Code if self.word.length > 0 => Place::None("directly behind a name or a number"),
            State::Code => Place::Value,
            State::Slash if self.behind() == Behind::Operator => Place::Value,
            State::Slash => Place::None("behind a `/` that divides, or begins a regular expression"),
            State::Text(_, false) => Place::Text,
            State::Text(_, true) => Place::None("behind a backslash"),
            State::Template(_) => Place::None("in the text of a template literal"),
            State::LineComment | State::BlockComment(_) => Place::None("in a comment of a script"),
            State::Regex(..) => Place::None("in a regular expression"),
            State::Unclear(Unclear::Branches) => {
                Place::None("behind branches that leave the script in different places")
            }
            State::Unclear(Unclear::Slash) => {
                Place::None("behind a `/` after `}`, which divides or begins a regular expression")
            }
            State::Unclear(Unclear::Syntax) => Place::None("in a script that cannot be followed"),
        }
    }

    /// An insertion stands here, which [`Script::place`] has allowed.
    pub(super) fn insert(&mut self) {
        if matches!(self.state, State::Code | State::Slash) {
            self.state = State::Code;
            self.behind = Behind::Operator;
            self.word = Word::default();
            self.dotted = false;
            self.last = ['0'; 2];
        }
    }

    /// Two branches that come together.
    #[must_use]
    pub(super) fn join(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        let mut joined = self.clone();
        if (self.state, &self.open, self.language) != (other.state, &other.open, other.language) {
            joined.state = State::Unclear(Unclear::Branches);
        }
        if self.behind() == other.behind() {
            joined.behind = self.behind();
        } else {
            joined.behind = Behind::Either;
        }
        // A word that only one branch begins is still one that an insertion must not stand behind.
        if self.word != other.word {
            joined.word = Word::default();
            joined.word.push('\0');
        }
        joined.head |= other.head;
        joined.either |= other.either;
        joined.dotted |= other.dotted;
        if self.last != other.last {
            // Whatever follows is taken for what makes most trouble.
            joined.last = ['\n'; 2];
            if joined.state == State::Code && (self.last.contains(&'-') || other.last.contains(&'-')) {
                joined.state = State::Unclear(Unclear::Branches);
            }
        }
        joined
    }

    /// What the last token needs behind it, words considered.
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

    /// Reads a written character.
    pub(super) fn advance(&mut self, character: char) {
        if self.language == Language::Other {
            return;
        }
        let is_line_end = matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}');
        match self.state {
            State::Code => self.code(character),
            State::Slash => self.slash(character),
            State::Text(quote, true) => self.state = State::Text(quote, false),
            State::Text(quote, false) => {
                if character == '\\' {
                    self.state = State::Text(quote, true);
                } else if character == quote {
                    self.operand();
                } else if matches!(character, '\n' | '\r') {
                    self.give_up();
                }
            }
            State::Template(template) => self.template(template, character),
            State::LineComment if is_line_end => self.back_to_code(character),
            State::BlockComment(true) if character == '/' => self.back_to_code(' '),
            State::BlockComment(_) => self.state = State::BlockComment(character == '*'),
            State::Regex(bracket, true) if !is_line_end => self.state = State::Regex(bracket, false),
            State::Regex(..) if is_line_end => self.give_up(),
            State::Regex(bracket, _) => match character {
                '\\' => self.state = State::Regex(bracket, true),
                '[' => self.state = State::Regex(true, false),
                ']' => self.state = State::Regex(false, false),
                '/' if !bracket => self.operand(),
                _ => {}
            },
            State::LineComment | State::Unclear(_) => {}
        }
    }

    /// A string, a template or a regular expression has ended.
    fn operand(&mut self) {
        self.state = State::Code;
        self.behind = Behind::Operator;
        self.word = Word::default();
        self.dotted = false;
        self.last = ['0'; 2];
    }

    /// A comment has ended; what stood in front of it still does.
    fn back_to_code(&mut self, character: char) {
        self.state = State::Code;
        self.code(character);
    }

    fn template(&mut self, template: Template, character: char) {
        self.state = State::Template(match (template, character) {
            (Template::Backslash, _) => Template::Plain,
            (_, '\\') => Template::Backslash,
            (_, '`') => return self.operand(),
            (Template::Dollar, '{') => {
                self.state = State::Code;
                self.behind = Behind::Operand;
                self.word = Word::default();
                self.last = ['{'; 2];
                return self.push(Open::Template);
            }
            (_, '$') => Template::Dollar,
            _ => Template::Plain,
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
            '/' => self.state = State::LineComment,
            '*' => self.state = State::BlockComment(false),
            _ => match self.behind() {
                Behind::Operand => {
                    self.state = State::Regex(false, false);
                    self.word = Word::default();
                    self.advance(character);
                }
                behind => {
                    self.either |= behind == Behind::Either;
                    self.state = State::Code;
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
                '"' => self.state = State::Text('"', false),
                '\'' | '`' | '/' => self.give_up(),
                // Only whether a value can stand here is asked, and JSON's readers ask it again.
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
                // Here the two readings part.
                self.state = State::Unclear(Unclear::Slash);
            }
            '"' | '\'' => {
                self.end_word();
                self.state = State::Text(character, false);
            }
            '`' => {
                self.end_word();
                self.state = State::Template(Template::Plain);
            }
            '/' => self.state = State::Slash,
            '{' => {
                self.mark('{');
                self.push(Open::Brace);
            }
            '}' => {
                self.mark('}');
                self.behind = Behind::Either;
                match self.open.pop() {
                    Some(Open::Template) => self.state = State::Template(Template::Plain),
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
            // An escape in a name could make a keyword of it.
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

    /// The word has ended; what it needs behind it is kept.
    fn end_word(&mut self) {
        if self.word.length > 0 {
            self.behind = self.behind();
            // `for await (` as well.
            self.head = !self.dotted && matches!(self.word.text(), b"if" | b"while" | b"for" | b"with" | b"await");
            self.word = Word::default();
            self.dotted = false;
        }
    }
}
