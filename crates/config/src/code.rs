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
    Syntax, "C0101", "not KDL", "The text is not KDL 2. A setting is a name, then values with spaces between them, then perhaps a block in braces; a new line or `;` ends it.";
    SettingUnknown, "C0102", "unknown setting", "No setting has this name here. The message names the nearest one and lists what is allowed.";
    PropertyUnknown, "C0103", "unknown property", "The setting has no property (`name=value`) of this name. The message lists those it has.";
    ValueMissing, "C0104", "value missing", "The setting needs a value behind its name.";
    ValueUnexpected, "C0105", "value too many", "The setting takes fewer values than stand here. Perhaps two settings stand in one line without `;`, or a value belongs to a property.";
    PropertyMissing, "C0106", "property missing", "The setting means nothing without this property.";
    TypeWrong, "C0107", "wrong type", "The value has another type: texts stand in quotes, numbers do not, and yes and no are `#true` and `#false`.";
    GivenTwice, "C0108", "given twice", "The setting or property can be given once only here, and it stands here twice. Remove one of them.";
    BlockUnexpected, "C0109", "no block here", "The setting takes no block in braces.";
    BlockMissing, "C0110", "block missing", "The setting needs a block in braces, with something in it.";
    BraceUnclosed, "C0111", "brace not closed", "A block was opened with `{` and the file ends before its `}`. The indentation tells which block it is likely to be.";
    BraceStray, "C0112", "brace too many", "This `}` closes nothing. One was typed too many, or a `{` is missing above.";
    QuoteUnclosed, "C0113", "text or comment not closed", "A text begins with a quote and the line ends before the closing one, or a comment begins with `/*` and nothing ends it.";
    QuotesMissing, "C0114", "quotes missing", "Paths, addresses, sizes, durations and whatever else has a `/` in it or begins with a digit need double quotes in KDL.";
    KeywordBare, "C0115", "bare keyword", "In KDL 2, yes and no are written `#true` and `#false`.";
    CallForm, "C0116", "call form", "KDL has no functions. A value from the environment is written `(env)\"NAME\"`, one with a default `(env)\"NAME:-default\"`, and one from a file `(file)\"path\"`.";
    TooDeep, "C0117", "nested too deep", "Blocks are nested deeper than 32 levels.";
    TooLarge, "C0118", "too large", "The file is larger than 1 MiB. Split it, and include the parts.";
    AnnotationUnknown, "C0119", "unknown annotation", "Before a value may stand `(env)` or `(file)`, and nothing else; before a name nothing may stand.";
    NameMissing, "C0120", "name missing", "A block begins without the name of its setting. The brace stands on the same line as the name.";
    CommentForm, "C0121", "comment form", "A comment begins with `//`, or stands between `/*` and `*/`; `/-` takes out the setting, value or block behind it.";
    CharacterBad, "C0122", "forbidden character", "KDL forbids control characters and the marks that change the direction of writing.";
    EqualsStray, "C0123", "equals sign astray", "A setting's value stands behind its name without `=`; only properties have one: `name=value`.";
    CommaStray, "C0124", "comma astray", "Values have spaces between them, and no commas.";
    JsonBad, "C0125", "not a JSON twin", "The JSON file is not what `flatout adapt` prints: an array of settings, each an object with `name` and perhaps `args`, `props` and `children`.";

    FileUnreadable, "C0201", "unreadable file", "The configuration, or a part that is included, cannot be read.";
    FileNotText, "C0202", "not a text", "The file is not UTF-8.";
    IncludeNothing, "C0203", "nothing to include", "No file has the name that is to be included. A pattern with a star may match nothing; a plain name may not.";
    IncludeCycle, "C0204", "include cycle", "A file includes itself, directly or through others.";
    IncludeTooMany, "C0205", "too many includes", "Includes are nested deeper than 16 levels, or more than 1,000 files or 32 MiB are read.";
    IncludePattern, "C0206", "include pattern", "A pattern may have `*` and `?` in its last part only: `sites/*.kdl`.";
    EnvironmentMissing, "C0207", "environment variable missing", "The environment variable is not set, or is no text. Set it, or give a default: `(env)\"NAME:-default\"`.";
    SecretUnreadable, "C0208", "secret unreadable", "The file that holds the value cannot be read, is larger than 64 KiB, or is not UTF-8.";

    SizeBad, "C0301", "not a size", "A size is a number with a unit: `512KiB`, `64MiB`, `1GB`. `KB`, `MB`, `GB` count in thousands, `KiB`, `MiB`, `GiB` in 1,024s; `B` alone is bytes.";
    DurationBad, "C0302", "not a duration", "A duration is a number with a unit: `250ms`, `10s`, `2m`, `1h`, `7d`.";
    AddressBad, "C0303", "not an address", "An address is an IP address and a port: `127.0.0.1:8080`, `[::1]:8080`, or `:8080` for all of this machine's.";
    NumberBounds, "C0304", "out of bounds", "The value is smaller or larger than what the setting can take. The message has the bounds.";
    WordUnknown, "C0305", "unknown word", "The setting takes one of a few words, and this is none of them.";
    HostBad, "C0306", "not a host name", "A host name has labels of letters, digits and hyphens with dots between them: `example.com`; `*.example.com` stands for all names below, and `*` for all others. No scheme, no port, no path.";
    FieldNameBad, "C0307", "not a field name", "A header field's name is a token (RFC 9110, section 5.1): letters, digits and !#$%&'*+-.^_`|~.";
    FieldValueBad, "C0308", "not a field value", "A header field's value holds no control characters, and neither begins nor ends with a space (RFC 9110, section 5.5).";
    FieldOwned, "C0309", "field of the server", "The server itself writes this field, as the framing of messages hangs on it; it can be neither set nor removed.";
    MethodBad, "C0310", "not a method", "A method is a token in capitals (RFC 9110, section 9.1): `GET`, `POST`.";
    StatusBad, "C0311", "not a status", "The status is outside what makes sense here: 200 to 599 to respond, 301, 302, 303, 307 or 308 to redirect, 400 to 599 for error pages.";
    NetworkBad, "C0312", "not a network", "A network is an address and how many of its bits count: `10.0.0.0/8`, `2001:db8::/32`; or one address; or `all`.";
    HashBad, "C0313", "not a password hash", "Passwords are kept as hashes: argon2 (`$argon2id$…`) or bcrypt (`$2b$…`). `flatout passwd` makes one.";
    PatternBad, "C0314", "not a path pattern", "A pattern is `/exact`, `/prefix/*`, `*.ending`, or has stars within its parts; it is compared with the decoded path, so it begins with `/` or `*` and has no `?`, no `#` and no `..`.";
    VariableUnknown, "C0315", "unknown variable", "In braces may stand `client`, `host`, `host_port`, `path`, `uri`, `query`, `scheme` and `rest`. Write a literal brace twice: `{{`.";
    MediaTypeBad, "C0316", "not a media type", "A media type is `text/html`, a family `image/*`; `*` is everything.";
    OriginBad, "C0317", "not an origin", "An origin is a scheme and a host, with a port perhaps, and nothing behind: `https://example.com`; or `*` for all.";
    TextBad, "C0318", "text cannot be used", "The text is empty, too long, or holds characters that cannot stand here.";
    TargetBad, "C0319", "not a target", "A redirect leads to a URL with `http://` or `https://`, or to a path that begins with one `/`; a rewrite to such a path; a try to such a path or to a status, `=404`.";
    LinkBad, "C0320", "not a link", "A hint is the value of a Link field (RFC 8288): `</app.css>; rel=preload; as=style`.";
    ForwardBad, "C0321", "nothing to forward to", "Requests are forwarded to `http://` or `https://`, a host and perhaps a port, and nothing behind: `http://127.0.0.1:3000`, `https://origin.example`. `:3000` is port 3000 of this machine.";
    QueryNameBad, "C0322", "not a query parameter", "A parameter's name as it stands in the query, without `?`, `&`, `=` and `#`; a trailing `*` matches any suffix: `utm_*`.";
    CookieNameBad, "C0323", "not a cookie's name", "The name of a cookie is a token: letters, digits and some signs, without spaces, `=` and `;`. In `bypass-cookies` and `ignore-cookies` a star at its end stands for all that begin so: `_ga_*`; `*` alone is every cookie.";
    ServerBad, "C0330", "no application server", "An application server listens on a socket in the file system, `unix:/run/php/php-fpm.sock`, or at a host and a port, `tcp:127.0.0.1:9000`.";

    HostTwice, "C0401", "host twice", "Two sites have the same host name at the same address, so a request would match both.";
    CertificateMissing, "C0402", "no certificate", "The site listens for TLS and has no certificate. Give it one: `tls cert=\"chain.pem\" key=\"key.pem\"`, or `tls \"internal\"` for our own.";
    ListenerConflict, "C0403", "listeners disagree", "Two sites share an address and describe it in different ways; one address speaks one protocol.";
    Unreachable, "C0404", "never reached", "What stands before answers every request, so nothing ever comes here. Written order is the order of execution: move this before the handler, or the handler into a route.";
    LogUnknown, "C0405", "unknown log", "No log at the top level of the file has this name.";
    LogConflict, "C0406", "logs disagree", "Two logs have the same name or the same target, and differ otherwise.";
    SiteMissing, "C0407", "no site", "The configuration has no site, so there is nothing to serve.";
    WrongPlace, "C0408", "wrong place", "The setting exists, and belongs elsewhere: the message says where.";
    CertificateUnused, "C0409", "certificate without use", "The site has a certificate and no address where TLS is spoken. Add `tls=#true` to a `listen`.";
    Contradiction, "C0410", "contradiction", "Two settings exclude one another.";
    SameTwice, "C0411", "the same twice", "The list has the same entry twice.";
    NoAnswer, "C0412", "no answer", "Nothing in this site ever answers. Give it a handler: files, pages, php, proxy, respond, redirect or metrics.";
    CacheUnused, "C0413", "cache without use", "No `proxy` stands behind this `cache`, and only what origins answer is kept by it. Files have a cache of their own, which needs no setting. What active pages and scripts answer is kept by a site in front of theirs: one with `cache` and `proxy \"http://127.0.0.1:8081\"`, and theirs with `listen \"127.0.0.1:8081\"`.";
    PrivateServed, "C0414", "private file given out", "What active pages keep lies below a folder that a `files` step gives out, so visitors could load the database, or the key with which sessions are signed. Move it out of the folder, or into one below it whose name begins with a dot.";

    CodeUnclosed, "P0101", "code not closed", "A page's code begins with `<?` and ends with `?>`; the file ends before. In a text or a long comment of Luau, `?>` ends nothing.";
    InsertionUnknown, "P0102", "unknown insertion", "Behind `<?` stands `=`, `raw`, `lua` or `include`, and nothing else. As text it is written `&lt;?`, in a script's strings `<\\?`.";
    LuauBad, "P0103", "not Luau", "The code is not Luau. The message is the compiler's, or tells what is not closed.";
    ExpressionBad, "P0104", "not one expression", "Between `<?=` or `<?raw` and `?>` stands one expression: no statement, and no list with commas.";
    BlockUnclosed, "P0105", "block not closed", "An `if`, `for`, `while`, `do` or `repeat` is not closed by `end` or `until` in the file in which it begins.";
    BlockStray, "P0106", "end too many", "This `end`, `else`, `elseif` or `until` belongs to nothing in this file.";
    FunctionAround, "P0107", "function around a page's text", "A function ends in the block of code in which it begins: what it wrote would go to wherever it is called, and its escaping would be wrong there. Return a value, or include a file.";
    StatementUnfinished, "P0108", "statement not finished", "A block of code ends within a statement. Brackets, expressions and the heads of `if`, `for` and `while` stand in one block.";
    NameReserved, "P0109", "reserved name", "Names that begin with two underscores and one letter, as `__w`, belong to what the page is compiled to.";
    PageUnreadable, "P0201", "unreadable page", "The page, or what it includes, cannot be read.";
    PageNotText, "P0202", "not a text", "Pages are UTF-8, without NUL.";
    PageTooLarge, "P0203", "page too large", "A file has at most 1 MiB, a page with all that it includes at most 4 MiB, in at most 256 includes nested at most 16 deep.";
    PartForm, "P0204", "include form", "An include names one file in quotes: `<?include \"_head.lhtml\" ?>`. The path is relative to the file it stands in, has `/` between its parts, and leads nowhere out of the folder.";
    PartMissing, "P0205", "nothing to include", "No file has the name that is to be included.";
    PartCycle, "P0206", "include cycle", "A file includes itself, directly or through others.";
    InTag, "P0301", "insertion in a tag", "What stands here becomes a name: of a tag or of an attribute. No escaping makes a name safe. Choose among written ones with `<?lua if … ?>`.";
    InUnquoted, "P0302", "insertion without quotes", "An attribute's value that holds an insertion stands in quotes.";
    InComment, "P0303", "insertion in a comment", "In HTML's comments and declarations nothing is inserted. A comment that visitors do not see is `<?lua --[[ … ]] ?>`.";
    InStyle, "P0304", "insertion in a style sheet", "In CSS nothing is inserted. Choose among written classes; or put numbers into a `data-` attribute, and read them with a script.";
    InScript, "P0305", "insertion in a script where no value stands", "In a script, a value stands where an expression stands, or within a string in quotes; not in a template literal's text, a regular expression or a comment, and not directly behind a name.";
    InUrl, "P0306", "insertion in a URL of unknown position", "Where a URL is run, or loads what is run, it begins with what is written: `/scripts/` or `https://host/`. A URL that begins with `javascript:` or `data:` takes no insertion.";
    InAttribute, "P0307", "insertion in an attribute that is run", "The attribute's value is run, or changes how others are read. Put the value into a `data-` attribute, and read it with a script.";
    InElement, "P0308", "insertion in an unsupported element", "Browsers do not agree on what the content of this element is, or do not decode it.";
    InReference, "P0309", "insertion behind an open `&`", "The `&` in front would make a character reference of what is inserted. As itself it is written `&amp;`.";
    InEither, "P0310", "insertion behind branches that differ", "The preceding branches end in different HTML contexts, so the escaping of the insertion is ambiguous. Put it into each branch.";
    BranchesDiffer, "P0401", "branches end in different places", "All branches of an `if`, and every round of a loop, end in the same place of the HTML: all in text, or all in the same attribute. Close in each branch what it opens.";
    MarkupOpen, "P0402", "page ends within markup", "The page ends within a tag, a comment or a script. What follows in the browser would be read wrongly. A file that is only included has a name that begins with `_`.";
    MarkupUnclear, "P0403", "markup that is read in two ways", "How browsers read this depends on what stands around it or on their settings. The message tells what to write instead.";
    PageTangled, "P0404", "page too tangled", "Loops and branches are nested so that following the HTML through them takes too long. Move inner loops into functions that return text.";
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
