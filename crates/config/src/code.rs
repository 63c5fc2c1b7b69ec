//! Diagnostic codes of configurations (`C`) and active pages (`P`). A single table gives each code, its title and its
//! explanation.

macro_rules! codes {
    ($($variant:ident, $id:literal, $title:literal, $text:literal;)+) => {
        /// The kind of a mistake. Codes are stable: a number is never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $text] $variant,)+
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable code, such as `C0102`.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }

            /// A title of a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }

            /// The explanation: what the code means and what to do.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

codes! {
    Syntax, "C0101", "invalid KDL", "The text is not valid KDL 2. A setting is a name, followed by values separated by spaces and optionally a block in braces; a newline or `;` ends it.";
    SettingUnknown, "C0102", "unknown setting", "No setting has this name here. The message suggests the most similar name and lists the allowed ones.";
    PropertyUnknown, "C0103", "unknown property", "The setting has no property (`name=value`) with this name. The message lists its properties.";
    ValueMissing, "C0104", "missing value", "The setting needs a value after its name.";
    ValueUnexpected, "C0105", "too many values", "The setting has more values than it takes. Perhaps two settings are on one line without a `;` between them, or a property is written without its name.";
    PropertyMissing, "C0106", "missing property", "The setting requires this property.";
    TypeWrong, "C0107", "wrong type", "The value has the wrong type: strings are in quotes, numbers are not, and booleans are `#true` and `#false`.";
    GivenTwice, "C0108", "repeated setting", "The setting or property may occur only once here. Remove one of the two.";
    BlockUnexpected, "C0109", "unexpected block", "The setting takes no block in braces.";
    BlockMissing, "C0110", "missing block", "The setting needs a non-empty block in braces.";
    BraceUnclosed, "C0111", "unclosed brace", "A block has no closing `}` before the end of the file. The message points at the block that is probably meant, judging by the indentation.";
    BraceStray, "C0112", "unmatched brace", "This `}` has no matching `{`. Remove it, or add the missing `{` above.";
    QuoteUnclosed, "C0113", "unclosed string or comment", "A string has no closing quote on its line, or a comment that begins with `/*` has no closing `*/`.";
    QuotesMissing, "C0114", "missing quotes", "Paths, addresses, sizes, durations and other values that contain a `/` or begin with a digit need double quotes in KDL.";
    KeywordBare, "C0115", "bare keyword", "In KDL 2, booleans are written `#true` and `#false`.";
    CallForm, "C0116", "function call", "KDL has no functions. Write `(env)\"NAME\"` for an environment variable, `(env)\"NAME:-default\"` for one with a default, and `(file)\"path\"` for the content of a file.";
    TooDeep, "C0117", "nested too deeply", "Blocks can be nested at most 32 levels deep.";
    TooLarge, "C0118", "too large", "The file is larger than 1 MiB. Split it, and use `include` for the parts.";
    AnnotationUnknown, "C0119", "unknown annotation", "Only the annotations `(env)` and `(file)` are allowed, and only before a value, never before a name.";
    NameMissing, "C0120", "missing name", "A block begins without the name of its setting. Put the brace on the same line as the name.";
    CommentForm, "C0121", "invalid comment", "A comment begins with `//`, or is enclosed in `/*` and `*/`; `/-` disables the setting, value or block after it.";
    CharacterBad, "C0122", "forbidden character", "KDL does not allow control characters or bidirectional formatting characters.";
    EqualsStray, "C0123", "misplaced equals sign", "Write a setting's value after its name without `=`; only properties use `=`: `name=value`.";
    CommaStray, "C0124", "misplaced comma", "Values are separated by spaces, not commas.";
    JsonBad, "C0125", "invalid JSON form", "The JSON file must have the form that `flatout adapt` prints: an array of settings, each an object with `name` and optionally `args`, `props` and `children`.";

    FileUnreadable, "C0201", "unreadable file", "The configuration or an included file cannot be read.";
    FileNotText, "C0202", "not UTF-8", "The file is not UTF-8.";
    IncludeNothing, "C0203", "include not found", "The included file does not exist. A pattern with `*` or `?` may match no file, but a path without wildcards must exist.";
    IncludeCycle, "C0204", "include cycle", "A file includes itself, directly or through others.";
    IncludeTooMany, "C0205", "too many includes", "Includes are nested more than 16 levels deep, or comprise more than 1,000 files or 32 MiB.";
    IncludePattern, "C0206", "invalid include pattern", "A pattern may contain `*` and `?` only in its last path component: `sites/*.kdl`.";
    EnvironmentMissing, "C0207", "missing environment variable", "The environment variable is not set, or its value is not UTF-8. Set it, or specify a default: `(env)\"NAME:-default\"`.";
    SecretUnreadable, "C0208", "unreadable secret", "The file that `(file)` names cannot be read, is larger than 64 KiB, or is not UTF-8.";

    SizeBad, "C0301", "invalid size", "A size is a number with a unit: `512KiB`, `64MiB`, `1GB`. `KB`, `MB` and `GB` are powers of 1,000, `KiB`, `MiB` and `GiB` powers of 1,024; `B` is bytes.";
    DurationBad, "C0302", "invalid duration", "A duration is a number with a unit: `250ms`, `10s`, `2m`, `1h`, `7d`.";
    AddressBad, "C0303", "invalid address", "An address is an IP address and a port: `127.0.0.1:8080`, `[::1]:8080`, or `:8080` for all addresses of this machine. `unix:/run/flatout/site.sock` is a Unix socket.";
    NumberBounds, "C0304", "out of range", "The value is too small or too large for the setting. The message shows the allowed range.";
    WordUnknown, "C0305", "unknown value", "The setting accepts only certain values, and this is not one of them. The message lists them.";
    HostBad, "C0306", "invalid host name", "A host name consists of labels of letters, digits and hyphens, separated by dots: `example.com`. `*.example.com` matches all names under example.com, and `*` matches all other hosts. A host name must not include a scheme, port or path.";
    FieldNameBad, "C0307", "invalid field name", "A header field's name is a token (RFC 9110, section 5.1): letters, digits and !#$%&'*+-.^_`|~.";
    FieldValueBad, "C0308", "invalid field value", "A header field's value must not contain control characters, and must not begin or end with a space (RFC 9110, section 5.5).";
    FieldOwned, "C0309", "reserved field", "Only the server itself sets this field; you cannot set or remove it.";
    MethodBad, "C0310", "invalid method", "A method is an uppercase token (RFC 9110, section 9.1): `GET`, `POST`.";
    StatusBad, "C0311", "invalid status", "The status is not valid here: `respond` takes 200 to 599, `redirect` 301, 302, 303, 307 or 308, and error pages 400 to 599.";
    NetworkBad, "C0312", "invalid network", "A network is an address with a prefix length (`10.0.0.0/8` or `2001:db8::/32`), a single address, or `all`.";
    HashBad, "C0313", "invalid password hash", "Passwords are stored as hashes: argon2 (`$argon2id$…`) or bcrypt (`$2b$…`). `flatout passwd` creates one.";
    PatternBad, "C0314", "invalid path pattern", "A pattern has the form `/exact`, `/prefix/*` or `*.ending`, or contains `*` within segments; `{a,b}` stands for `a` or `b`. It is compared with the decoded path, so it must begin with `/` or `*`, and must not contain `?`, `#` or `..`.";
    VariableUnknown, "C0315", "unknown variable", "The variables are `client`, `host`, `host_port`, `path`, `uri`, `query`, `scheme` and `rest`. Write a literal brace as `{{` or `}}`.";
    MediaTypeBad, "C0316", "invalid media type", "A media type is a type such as `text/html`, or a range such as `image/*`; `*` matches every type.";
    OriginBad, "C0317", "invalid origin", "An origin is a scheme, a host and optionally a port, without a path: `https://example.com`. `*` stands for all origins.";
    TextBad, "C0318", "invalid string", "The string is empty, too long, or contains characters that are not allowed here.";
    TargetBad, "C0319", "invalid target", "A `redirect` target is a URL that begins with `http://` or `https://`, or a path that begins with a single `/`. A `rewrite` target is such a path, and a `try` target is such a path or a status, such as `=404`.";
    LinkBad, "C0320", "invalid link", "An early hint is written like the value of a Link field (RFC 8288): `</app.css>; rel=preload; as=style`.";
    ForwardBad, "C0321", "invalid proxy origin", "An origin is `http://` or `https://`, a host and optionally a port, without a path: `http://127.0.0.1:3000`, `https://origin.example`. `:3000` is port 3000 on this machine.";
    QueryNameBad, "C0322", "invalid query parameter", "Write a parameter's name as it occurs in the query, without `?`, `&`, `=` or `#`. A trailing `*` matches any suffix: `utm_*`.";
    CookieNameBad, "C0323", "invalid cookie name", "A cookie's name is a token: letters, digits and some punctuation, without spaces, `=` or `;`. In `bypass-cookies` and `ignore-cookies`, a trailing `*` matches any suffix: `_ga_*`; `*` alone matches every cookie.";
    ServerBad, "C0330", "invalid application server address", "An application server listens on a Unix socket, `unix:/run/php/php-fpm.sock`, or on a host and a port, `tcp:127.0.0.1:9000`.";

    HostTwice, "C0401", "duplicate host", "Two sites have the same host name on the same address, so a request would match both.";
    CertificateMissing, "C0402", "missing certificate", "The site listens for TLS but has no certificate. Add `tls cert=\"chain.pem\" key=\"key.pem\"`, or `tls \"internal\"` to use flatout's local certificate authority.";
    ListenerConflict, "C0403", "conflicting listeners", "Two sites share an address but set different options for it, or have addresses of which one includes the other. All sites on an address must use the same protocol and options, and `0.0.0.0:80` includes `127.0.0.1:80`.";
    Unreachable, "C0404", "unreachable directive", "An earlier directive responds to every request, so no request reaches this one. Directives run in the order in which they are written: move this directive before the earlier one, or put the earlier one into a route.";
    LogUnknown, "C0405", "unknown log", "No top-level `log` has this name.";
    LogConflict, "C0406", "conflicting logs", "Two logs have the same name or target but different settings.";
    SiteMissing, "C0407", "missing site", "The configuration has no site, so there is nothing to serve.";
    WrongPlace, "C0408", "misplaced setting", "The setting is not allowed here; the message says where it belongs.";
    CertificateUnused, "C0409", "unused certificate", "The site has a certificate, but none of its addresses uses TLS. Add `tls=#true` to a `listen`.";
    Contradiction, "C0410", "conflicting settings", "Two settings are mutually exclusive.";
    SameTwice, "C0411", "duplicate entry", "The list has the same entry twice.";
    NoAnswer, "C0412", "missing handler", "The site has no handler, so it can never respond. Add one: files, pages, php, proxy, respond, redirect or metrics.";
    CacheUnused, "C0413", "unused cache", "No `proxy` follows this `cache`, which stores only responses from origins. Files have their own cache, which needs no setting. To cache active pages and scripts, put another site with `cache` and `proxy \"http://127.0.0.1:8081\"` in front of their site, and give their site `listen \"127.0.0.1:8081\"`.";
    PrivateServed, "C0414", "private data would be served", "Private data of active pages is in a folder that a `files` handler serves, so visitors could download the database, its migrations or the key that signs sessions. Move the data out of the folder, or into a subfolder whose name begins with a dot.";

    CodeUnclosed, "P0101", "unclosed code block", "Code in a page begins with `<?` and ends with `?>`, but the file ends before the `?>`. Inside a Luau string or long comment, `?>` does not end the code.";
    InsertionUnknown, "P0102", "unknown insertion", "`<?` must be followed by `=`, `raw`, `lua` or `include`, or begin an XML declaration (`<?xml `). To write a literal `<?`, use `&lt;?`, or `<\\?` in a script's strings.";
    LuauBad, "P0103", "invalid Luau", "The code is not valid Luau. The message is from the Luau compiler, or says what is not closed.";
    ExpressionBad, "P0104", "not a single expression", "`<?=` and `<?raw` must contain a single expression, not a statement or a comma-separated list.";
    BlockUnclosed, "P0105", "unclosed block", "An `if`, `for`, `while`, `do` or `repeat` is not closed by `end` or `until` in the file in which it begins.";
    BlockStray, "P0106", "unmatched end", "This `end`, `else`, `elseif` or `until` has no matching block in this file.";
    FunctionAround, "P0107", "function around page text", "A function must end in the code block in which it begins. Otherwise the page text inside it would be written wherever the function is called, with the wrong escaping. Return a value from the function, or include a file.";
    StatementUnfinished, "P0108", "unfinished statement", "A code block ends in the middle of a statement. Brackets, expressions and the heads of `if`, `for` and `while` must be complete within one code block.";
    NameReserved, "P0109", "reserved name", "Names that begin with two underscores and one letter, such as `__w`, are reserved for compiled pages.";
    PageUnreadable, "P0201", "unreadable page", "The page or an included file cannot be read.";
    PageNotText, "P0202", "not UTF-8", "Pages must be UTF-8, and must not contain NUL.";
    PageTooLarge, "P0203", "page too large", "A file may be at most 1 MiB, and a page with all included files at most 4 MiB. A page may have at most 256 includes, nested at most 16 levels deep.";
    PartForm, "P0204", "invalid include", "An include names one file in quotes: `<?include \"_head.lhtml\" ?>`. The path is relative to the file that contains it, uses `/` as its separator, and must not point outside the folder.";
    PartMissing, "P0205", "include not found", "The included file does not exist.";
    PartCycle, "P0206", "include cycle", "A file includes itself, directly or through others.";
    InTag, "P0301", "insertion in a tag", "An insertion here would become the name of a tag or an attribute, and no escaping makes a name safe. Use `<?lua if … ?>` to choose between literal names.";
    InUnquoted, "P0302", "insertion without quotes", "An attribute's value that contains an insertion must be in quotes.";
    InComment, "P0303", "insertion in a comment", "Insertions are not allowed in HTML comments and declarations. For a comment that visitors do not see, write `<?lua --[[ … ]] ?>`.";
    InStyle, "P0304", "insertion in a style sheet", "Insertions are not allowed in CSS. Use code to choose between literal classes, or put numbers into a `data-` attribute and read them with a script.";
    InScript, "P0305", "insertion at an unsupported position in a script", "In a script, an insertion may replace an expression or be part of a quoted string. It is not allowed in a template literal, a regular expression or a comment, or directly after a name.";
    InUrl, "P0306", "insertion at an unsafe position in a URL", "A URL that is executed, or that loads code, must begin with literal text: `/scripts/` or `https://host/`. A URL that begins with `javascript:` or `data:` must not contain an insertion.";
    InAttribute, "P0307", "insertion in an executed attribute", "Browsers execute the value of this attribute, or use it to decide how to interpret other attributes. Put the value into a `data-` attribute and read it with a script.";
    InElement, "P0308", "insertion in an unsupported element", "Browsers do not parse this element's content as ordinary HTML, or do not decode character references in it.";
    InReference, "P0309", "insertion after an open `&`", "The `&` before the insertion would turn the inserted text into a character reference. Write a literal `&` as `&amp;`.";
    InEither, "P0310", "insertion after branches with different contexts", "The preceding branches end in different HTML contexts, so the escaping of the insertion is ambiguous. Put it into each branch.";
    BranchesDiffer, "P0401", "branches end in different contexts", "All branches of an `if`, and every iteration of a loop, must end in the same HTML context: all in text, or all in the same attribute. Each branch must close what it opens.";
    MarkupOpen, "P0402", "page ends inside markup", "The page ends inside a tag, a comment or a script. If the file is only meant to be included, give it a name that begins with `_`.";
    MarkupUnclear, "P0403", "ambiguous markup", "How browsers parse this depends on its context or on their settings. The message says what to write instead.";
    PageTangled, "P0404", "page too complex", "Loops and branches are nested so deeply that determining the HTML context would take too long. Move inner loops into functions that return text.";
    PageFailed, "P0501", "page failed", "The page's code raised an error.";
}

impl Code {
    /// Returns true if nothing after this mistake can be read reliably, because braces or quotes do not match.
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

    /// Returns true if the mistake is certain even if other parts of the file cannot be read. A missing setting, a
    /// contradiction or an unreachable directive, by contrast, might only be a consequence of the unreadable parts.
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
