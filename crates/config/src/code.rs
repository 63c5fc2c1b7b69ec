//! Every kind of mistake that a configuration (`C`) or an active page (`P`) can hold: one table gives the code, its name,
//! and what to do about it.

macro_rules! codes {
    ($($variant:ident, $id:literal, $title:literal, $text:literal;)+) => {
        /// A kind of mistake. Codes are stable: a number is never used for anything else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $text] $variant,)+
        }

        impl Code {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable code, `C0102`.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }

            /// A few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }

            /// The meaning, and the action to take.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

codes! {
    Syntax, "C0101", "not KDL", "The text is not KDL 2. A setting is a name, then values separated by spaces, then perhaps a block in braces; a new line or `;` ends it.";
    SettingUnknown, "C0102", "unknown setting", "No setting has this name here. The message names the nearest one and lists what is allowed.";
    PropertyUnknown, "C0103", "unknown property", "The setting has no property (`name=value`) of this name. The message lists the properties that it has.";
    ValueMissing, "C0104", "value missing", "The setting needs a value after its name.";
    ValueUnexpected, "C0105", "value too many", "The setting takes fewer values than it has here. Perhaps two settings are on one line without `;`, or a value belongs to a property.";
    PropertyMissing, "C0106", "property missing", "The setting requires this property.";
    TypeWrong, "C0107", "wrong type", "The value has the wrong type: strings are in quotes, numbers are not, and booleans are `#true` and `#false`.";
    GivenTwice, "C0108", "given twice", "The setting or property may be given only once here. Remove one of the two.";
    BlockUnexpected, "C0109", "no block here", "The setting takes no block in braces.";
    BlockMissing, "C0110", "block missing", "The setting needs a block in braces that is not empty.";
    BraceUnclosed, "C0111", "brace not closed", "The file ends before the `}` of a block. The message names the likely block, according to the indentation.";
    BraceStray, "C0112", "brace too many", "This `}` closes nothing. One was typed too many, or a `{` is missing above.";
    QuoteUnclosed, "C0113", "text or comment not closed", "A string has no closing quote on its line, or a comment that begins with `/*` has no end.";
    QuotesMissing, "C0114", "quotes missing", "Paths, addresses, sizes, durations and other values that contain a `/` or begin with a digit need double quotes in KDL.";
    KeywordBare, "C0115", "bare keyword", "In KDL 2, booleans are written `#true` and `#false`.";
    CallForm, "C0116", "call form", "KDL has no functions. A value from the environment is written `(env)\"NAME\"`, one with a default `(env)\"NAME:-default\"`, and one from a file `(file)\"path\"`.";
    TooDeep, "C0117", "nested too deep", "Blocks are nested deeper than 32 levels.";
    TooLarge, "C0118", "too large", "The file is larger than 1 MiB. Split it, and include the parts.";
    AnnotationUnknown, "C0119", "unknown annotation", "Only `(env)` and `(file)` are allowed before a value, and nothing before a name.";
    NameMissing, "C0120", "name missing", "A block begins without the name of its setting. Put the brace on the same line as the name.";
    CommentForm, "C0121", "comment form", "A comment begins with `//`, or is enclosed in `/*` and `*/`; `/-` disables the setting, value or block after it.";
    CharacterBad, "C0122", "forbidden character", "KDL forbids control characters and characters that change the direction of text.";
    EqualsStray, "C0123", "misplaced equals sign", "A setting's value follows its name without `=`; only properties use it: `name=value`.";
    CommaStray, "C0124", "misplaced comma", "Values are separated by spaces, not commas.";
    JsonBad, "C0125", "not a JSON twin", "The JSON file is not what `flatout adapt` prints: an array of settings, each an object with `name` and perhaps `args`, `props` and `children`.";

    FileUnreadable, "C0201", "unreadable file", "The configuration or an included file cannot be read.";
    FileNotText, "C0202", "not a text", "The file is not UTF-8.";
    IncludeNothing, "C0203", "nothing to include", "The included file does not exist. A pattern with a star may match nothing; a plain name may not.";
    IncludeCycle, "C0204", "include cycle", "A file includes itself, directly or through others.";
    IncludeTooMany, "C0205", "too many includes", "Includes are nested deeper than 16 levels, or more than 1,000 files or 32 MiB are read.";
    IncludePattern, "C0206", "include pattern", "A pattern may contain `*` and `?` only in its last part: `sites/*.kdl`.";
    EnvironmentMissing, "C0207", "environment variable missing", "The environment variable is not set or not UTF-8. Set it, or give a default: `(env)\"NAME:-default\"`.";
    SecretUnreadable, "C0208", "secret unreadable", "The file with the value cannot be read, is larger than 64 KiB, or is not UTF-8.";

    SizeBad, "C0301", "not a size", "A size is a number with a unit: `512KiB`, `64MiB`, `1GB`. `KB`, `MB` and `GB` are powers of 1,000, `KiB`, `MiB` and `GiB` powers of 1,024; `B` is bytes.";
    DurationBad, "C0302", "not a duration", "A duration is a number with a unit: `250ms`, `10s`, `2m`, `1h`, `7d`.";
    AddressBad, "C0303", "not an address", "An address is an IP address and a port: `127.0.0.1:8080`, `[::1]:8080`, or `:8080` for all addresses of this machine.";
    NumberBounds, "C0304", "out of bounds", "The value is too small or too large for the setting. The message gives the bounds.";
    WordUnknown, "C0305", "unknown word", "The setting takes one of a few words, and this is not one of them.";
    HostBad, "C0306", "not a host name", "A host name consists of labels of letters, digits and hyphens, separated by dots: `example.com`. `*.example.com` matches all names below it, and `*` all other hosts. It has no scheme, port or path.";
    FieldNameBad, "C0307", "not a field name", "A header field's name is a token (RFC 9110, section 5.1): letters, digits and !#$%&'*+-.^_`|~.";
    FieldValueBad, "C0308", "not a field value", "A header field's value contains no control characters, and neither begins nor ends with a space (RFC 9110, section 5.5).";
    FieldOwned, "C0309", "field of the server", "Only the server writes this field, because the framing of messages depends on it; it cannot be set or removed.";
    MethodBad, "C0310", "not a method", "A method is a token in capitals (RFC 9110, section 9.1): `GET`, `POST`.";
    StatusBad, "C0311", "not a status", "The status is not valid here: `respond` takes 200 to 599, `redirect` 301, 302, 303, 307 or 308, and error pages 400 to 599.";
    NetworkBad, "C0312", "not a network", "A network is an address with a prefix length, `10.0.0.0/8` or `2001:db8::/32`, a single address, or `all`.";
    HashBad, "C0313", "not a password hash", "Passwords are stored as hashes: argon2 (`$argon2id$…`) or bcrypt (`$2b$…`). `flatout passwd` creates one.";
    PatternBad, "C0314", "not a path pattern", "A pattern is `/exact`, `/prefix/*`, `*.ending`, or has stars within its segments. It is compared with the decoded path, so it begins with `/` or `*` and contains no `?`, `#` or `..`.";
    VariableUnknown, "C0315", "unknown variable", "The variables are `client`, `host`, `host_port`, `path`, `uri`, `query`, `scheme` and `rest`. Write a literal brace twice: `{{`.";
    MediaTypeBad, "C0316", "not a media type", "A media type is `text/html`, or a family `image/*`; `*` is everything.";
    OriginBad, "C0317", "not an origin", "An origin is a scheme and a host, perhaps with a port, without a path: `https://example.com`; or `*` for all.";
    TextBad, "C0318", "text cannot be used", "The text is empty, too long, or contains characters that are not allowed here.";
    TargetBad, "C0319", "not a target", "The target of a redirect is a URL with `http://` or `https://`, or a path that begins with one `/`; that of a rewrite is such a path; that of a try is such a path, or a status such as `=404`.";
    LinkBad, "C0320", "not a link", "A hint is the value of a Link field (RFC 8288): `</app.css>; rel=preload; as=style`.";
    ForwardBad, "C0321", "nothing to forward to", "An origin is `http://` or `https://`, a host and perhaps a port, without a path: `http://127.0.0.1:3000`, `https://origin.example`. `:3000` is port 3000 of this machine.";
    QueryNameBad, "C0322", "not a query parameter", "Write a parameter's name as it occurs in the query, without `?`, `&`, `=` and `#`. A trailing `*` matches any suffix: `utm_*`.";
    CookieNameBad, "C0323", "not a cookie's name", "A cookie's name is a token: letters, digits and some punctuation, without spaces, `=` and `;`. In `bypass-cookies` and `ignore-cookies`, a trailing star matches any suffix: `_ga_*`; `*` alone is every cookie.";
    ServerBad, "C0330", "no application server", "An application server listens on a socket in the file system, `unix:/run/php/php-fpm.sock`, or at a host and a port, `tcp:127.0.0.1:9000`.";

    HostTwice, "C0401", "host twice", "Two sites have the same host name at the same address, so a request would match both.";
    CertificateMissing, "C0402", "no certificate", "The site listens for TLS but has no certificate. Add `tls cert=\"chain.pem\" key=\"key.pem\"`, or `tls \"internal\"` for one of flatout's local authority.";
    ListenerConflict, "C0403", "listeners disagree", "Two sites share an address but give it different options; one address has one protocol.";
    Unreachable, "C0404", "never reached", "A handler before this one responds to every request, so this is never reached. Directives run in written order: move this before the handler, or move the handler into a route.";
    LogUnknown, "C0405", "unknown log", "No log at the top level of the file has this name.";
    LogConflict, "C0406", "logs disagree", "Two logs have the same name or target but different settings.";
    SiteMissing, "C0407", "no site", "The configuration has no site, so there is nothing to serve.";
    WrongPlace, "C0408", "wrong place", "The setting belongs elsewhere: the message says where.";
    CertificateUnused, "C0409", "certificate without use", "The site has a certificate but no address with TLS. Add `tls=#true` to a `listen`.";
    Contradiction, "C0410", "contradiction", "Two settings are mutually exclusive.";
    SameTwice, "C0411", "the same twice", "The list has the same entry twice.";
    NoAnswer, "C0412", "no answer", "The site has no handler, so it can never respond. Add one: files, pages, php, proxy, respond, redirect or metrics.";
    CacheUnused, "C0413", "cache without use", "No `proxy` follows this `cache`, which stores only responses of origins. Files have their own cache, which needs no setting. To cache active pages and scripts, put another site with `cache` and `proxy \"http://127.0.0.1:8081\"` in front of their site, which has `listen \"127.0.0.1:8081\"`.";
    PrivateServed, "C0414", "private file would be served", "Private data of active pages is below a folder that a `files` handler serves, so visitors could download the database or the key that signs sessions. Move it out of the folder, or into a subfolder whose name begins with a dot.";

    CodeUnclosed, "P0101", "code not closed", "A page's code begins with `<?` and ends with `?>`, but the file ends before that. In a string or a long comment of Luau, `?>` does not end the code.";
    InsertionUnknown, "P0102", "unknown insertion", "After `<?` must come `=`, `raw`, `lua` or `include`. To write a literal `<?`, use `&lt;?`, or `<\\?` in a script's strings.";
    LuauBad, "P0103", "not Luau", "The code is not valid Luau. The message is the compiler's, or names what is not closed.";
    ExpressionBad, "P0104", "not one expression", "Between `<?=` or `<?raw` and `?>` there must be one expression, not a statement or a list with commas.";
    BlockUnclosed, "P0105", "block not closed", "An `if`, `for`, `while`, `do` or `repeat` is not closed by `end` or `until` in the file in which it begins.";
    BlockStray, "P0106", "unexpected end", "This `end`, `else`, `elseif` or `until` has no matching block in this file.";
    FunctionAround, "P0107", "function around page text", "A function must end in the block of code in which it begins: its text would be written wherever it is called, with the wrong escaping. Return a value, or include a file.";
    StatementUnfinished, "P0108", "statement not finished", "A block of code ends within a statement. Brackets, expressions and the heads of `if`, `for` and `while` must be complete within one block.";
    NameReserved, "P0109", "reserved name", "Names that begin with two underscores and one letter, such as `__w`, are reserved for compiled pages.";
    PageUnreadable, "P0201", "unreadable page", "The page or an included file cannot be read.";
    PageNotText, "P0202", "not a text", "Pages are UTF-8, without NUL.";
    PageTooLarge, "P0203", "page too large", "A file may have at most 1 MiB, and a page with all included files at most 4 MiB, with at most 256 includes nested at most 16 deep.";
    PartForm, "P0204", "include form", "An include names one file in quotes: `<?include \"_head.lhtml\" ?>`. The path is relative to the file that contains it, uses `/` between its parts, and must not lead out of the folder.";
    PartMissing, "P0205", "nothing to include", "The included file does not exist.";
    PartCycle, "P0206", "include cycle", "A file includes itself, directly or through others.";
    InTag, "P0301", "insertion in a tag", "An insertion here would become the name of a tag or an attribute, and no escaping makes a name safe. Choose among literal names with `<?lua if … ?>`.";
    InUnquoted, "P0302", "insertion without quotes", "An attribute's value that contains an insertion must be in quotes.";
    InComment, "P0303", "insertion in a comment", "Insertions are not allowed in HTML comments and declarations. For a comment that visitors do not see, write `<?lua --[[ … ]] ?>`.";
    InStyle, "P0304", "insertion in a style sheet", "Insertions are not allowed in CSS. Choose among literal classes, or put numbers into a `data-` attribute and read them with a script.";
    InScript, "P0305", "insertion in a script where no value is possible", "In a script, an insertion is allowed in place of an expression or within a quoted string, but not in a template literal, a regular expression or a comment, and not directly after a name.";
    InUrl, "P0306", "insertion in a URL of unknown position", "A URL that is executed, or that loads code, must begin with literal text: `/scripts/` or `https://host/`. A URL that begins with `javascript:` or `data:` takes no insertion.";
    InAttribute, "P0307", "insertion in an executed attribute", "The attribute's value is executed, or changes how others are read. Put the value into a `data-` attribute and read it with a script.";
    InElement, "P0308", "insertion in an unsupported element", "Browsers interpret the content of this element differently, or do not decode it.";
    InReference, "P0309", "insertion after an open `&`", "The `&` before it would turn the inserted text into a character reference. Write a literal `&` as `&amp;`.";
    InEither, "P0310", "insertion after branches that differ", "The preceding branches end in different HTML contexts, so the escaping of the insertion is ambiguous. Put it into each branch.";
    BranchesDiffer, "P0401", "branches end in different contexts", "All branches of an `if`, and every iteration of a loop, must end in the same HTML context: all in text, or all in the same attribute. Each branch must close what it opens.";
    MarkupOpen, "P0402", "page ends within markup", "The page ends within a tag, a comment or a script. If the file is only meant to be included, give it a name that begins with `_`.";
    MarkupUnclear, "P0403", "ambiguous markup", "How browsers read this depends on its surroundings or on their settings. The message says what to write instead.";
    PageTangled, "P0404", "page too complex", "The nesting of loops and branches makes it too slow to determine the HTML context. Move inner loops into functions that return text.";
    PageFailed, "P0501", "page failed", "The page's code ended with an error while it ran.";
}

impl Code {
    /// True if a text with this mistake tells nothing reliable about what follows it: blocks or quotes do not match.
    pub(crate) fn hides_the_rest(self) -> bool {
        matches!(
            self,
            Self::BraceUnclosed
                | Self::BraceStray
                | Self::QuoteUnclosed
                | Self::NameMissing
                | Self::TooDeep
                | Self::TooLarge
                | Self::CharacterBad
        )
    }

    /// True if the mistake lies in what is written, whatever else of the text cannot be read. That something is missing,
    /// contradicts another setting or is never reached could be due to that.
    pub(crate) fn stands_for_itself(self) -> bool {
        self.id().starts_with("C03")
            || matches!(
                self,
                Self::SettingUnknown
                    | Self::PropertyUnknown
                    | Self::TypeWrong
                    | Self::AnnotationUnknown
                    | Self::SameTwice
            )
    }
}

#[cfg(test)]
mod tests {
    use super::Code;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_ordered_and_explained() {
        let ids: Vec<&str> = Code::ALL.iter().map(|code| code.id()).collect();
        assert!(ids.is_sorted());
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for code in Code::ALL {
            assert!(code.text().ends_with('.') && !code.title().ends_with('.'), "{}", code.id());
        }
    }
}
