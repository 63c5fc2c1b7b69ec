//! The meaning of element and attribute names in browsers: which attributes contain URLs or code, and which elements
//! contain no markup. Names must be in lower case.

/// The kind of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeValue {
    /// Ordinary text.
    Plain,
    /// A URL that a user may follow, or that loads passive content.
    Url,
    /// A URL that loads code, or that is the base of other URLs.
    Resource,
    /// A list of URLs, separated by commas.
    UrlList,
    /// A script.
    Handler,
    /// A style sheet.
    Style,
    /// The language of a script element.
    ScriptType,
    /// The attribute `rel` of `<link>`, which determines whether browsers execute what `href` names.
    LinkType,
    /// The attribute `content` of `<meta>`, whose meaning depends on `http-equiv`.
    MetaContent,
    /// A value in which insertions are not allowed. The string completes "this attribute …" with the reason.
    Refused(&'static str),
}

/// How the content of an element is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementContent {
    /// The content is markup.
    Markup,
    /// The content is a script.
    Script,
    /// The content is a style sheet.
    Style,
    /// The content is text with character references.
    Text,
    /// The content is text without character references, or markup in some browsers or modes.
    Opaque,
    /// The content is text up to the end of the document.
    Endless,
}

/// Returns how the content of an element is parsed (HTML, sections 13.2.6.4.4 and 13.2.6.4.7).
pub(super) fn content_of(element: &[u8]) -> ElementContent {
    match element {
        b"script" => ElementContent::Script,
        b"style" => ElementContent::Style,
        b"textarea" | b"title" => ElementContent::Text,
        b"xmp" | b"iframe" | b"noembed" | b"noframes" => ElementContent::Opaque,
        b"plaintext" => ElementContent::Endless,
        _ => ElementContent::Markup,
    }
}

/// Returns whether the content of an SVG or MathML element is HTML again, so that a browser may find ends of elements
/// that this compiler does not find.
pub(super) fn is_integration_point(element: &[u8]) -> bool {
    matches!(element, b"foreignobject" | b"desc" | b"annotation-xml" | b"mi" | b"mo" | b"mn" | b"ms" | b"mtext")
}

/// Prefixes of attributes that libraries execute: Vue, Alpine, Angular, htmx, hyperscript, Knockout, Datastar.
const LIBRARIES: &[&[u8]] = &[
    b"v-",
    b"x-",
    b"ng-",
    b"data-ng-",
    b"data-v-",
    b"data-x-",
    b"hx-on",
    b"hx-vals",
    b"hx-vars",
    b"hx-headers",
    b"data-hx-on",
    b"data-hx-vals",
    b"data-hx-vars",
    b"data-bind",
    b"data-on-",
    b"data-on:",
];

/// Attributes that contain a URL in any element.
const URLS: &[&[u8]] = &[
    b"action",
    b"background",
    b"cite",
    b"data",
    b"dynsrc",
    b"formaction",
    b"href",
    b"icon",
    b"longdesc",
    b"lowsrc",
    b"manifest",
    b"ping",
    b"poster",
    b"profile",
    b"src",
    b"usemap",
];

/// The reason why the attributes of `<link>` that select a resource must be literal.
pub(super) const LOADS: &str = "determines what is loaded";

/// Link types (`rel` of `<link>`) with which browsers neither execute what `href` names nor apply it to the page. They
/// show it to users or search engines, load it as an image, or only prepare its loading.
const PASSIVE_LINKS: &[&[u8]] = &[
    b"alternate",
    b"amphtml",
    b"apple-touch-icon",
    b"apple-touch-icon-precomposed",
    b"apple-touch-startup-image",
    b"author",
    b"bookmark",
    b"canonical",
    b"dns-prefetch",
    b"edit",
    b"external",
    b"first",
    b"help",
    b"hub",
    b"icon",
    b"image_src",
    b"last",
    b"license",
    b"mask-icon",
    b"me",
    b"next",
    b"nofollow",
    b"noopener",
    b"noreferrer",
    b"pingback",
    b"preconnect",
    b"prefetch",
    b"prev",
    b"previous",
    b"privacy-policy",
    b"related",
    b"search",
    b"self",
    b"shortcut",
    b"shortlink",
    b"tag",
    b"terms-of-service",
    b"up",
    b"webmention",
];

/// Returns whether all types in the value of `rel`, in lower case, are passive. A value without types is passive, too.
pub(super) fn is_passive_link(rel: &[u8]) -> bool {
    rel.split(u8::is_ascii_whitespace).filter(|link| !link.is_empty()).all(|link| PASSIVE_LINKS.contains(&link))
}

/// Returns the kind of an attribute's value in an element.
pub(super) fn value_of(element: &[u8], attribute: &[u8]) -> AttributeValue {
    const RUN: &str = "is executed by libraries";
    let first = attribute.first().copied().unwrap_or(b' ');
    if first.is_ascii() && !first.is_ascii_alphabetic() || LIBRARIES.iter().any(|prefix| attribute.starts_with(prefix))
    {
        return AttributeValue::Refused(RUN);
    }
    if attribute.starts_with(b"on") {
        return AttributeValue::Handler;
    }
    // An attribute with a namespace prefix counts as the one with the local name. `xml:base` and namespace declarations
    // affect other attributes.
    let name = match attribute.iter().position(|&byte| byte == b':') {
        Some(_) if attribute.starts_with(b"xmlns") || attribute == b"xml:base" => {
            return AttributeValue::Refused("changes how browsers read other attributes");
        }
        Some(at) => &attribute[at + 1..],
        None => attribute,
    };
    if let Some(kept) = name.strip_prefix(b"data-") {
        // Scripts copy the values of these attributes to attributes that their names suggest.
        let holds = |part: &[u8]| kept.windows(part.len()).any(|window| window == part);
        let is_url = [&b"src"[..], b"href", b"url", b"uri"].iter().any(|part| holds(part));
        return if is_url { AttributeValue::Url } else { AttributeValue::Plain };
    }
    let refused = match (element, name) {
        (_, b"style") => return AttributeValue::Style,
        (_, b"srcdoc") => Some("contains an HTML document"),
        (_, b"http-equiv") => Some("changes how browsers read the page"),
        (_, b"is") => Some("determines which code is executed"),
        (b"meta" | b"script", b"charset") | (_, b"xmlns" | b"base") => {
            Some("changes how browsers read other attributes")
        }
        (b"script", b"type" | b"language") => return AttributeValue::ScriptType,
        (b"meta", b"content") => return AttributeValue::MetaContent,
        (b"link", b"rel") => return AttributeValue::LinkType,
        (b"link", b"as" | b"type" | b"blocking") => Some(LOADS),
        (b"iframe", b"sandbox" | b"allow" | b"csp") => Some("restricts the frame's permissions"),
        (b"object" | b"embed", b"type" | b"classid" | b"codebase" | b"archive" | b"code") => {
            Some("determines which code is executed")
        }
        (b"applet", _) | (b"param", b"value" | b"name") => Some("is passed to executed code"),
        (
            b"animate" | b"set" | b"animatetransform" | b"animatemotion" | b"animatecolor",
            b"attributename" | b"to" | b"from" | b"by" | b"values",
        ) => Some("can become the value of any other attribute"),
        _ => None,
    };
    if let Some(why) = refused {
        return AttributeValue::Refused(why);
    }
    match (element, name) {
        (_, b"srcset" | b"imagesrcset" | b"archive") => AttributeValue::UrlList,
        (b"script" | b"embed" | b"frame", b"src" | b"href")
        | (b"link" | b"base", b"href")
        | (b"object", b"data")
        | (_, b"manifest" | b"codebase" | b"classid") => AttributeValue::Resource,
        _ if URLS.contains(&name) => AttributeValue::Url,
        _ => AttributeValue::Plain,
    }
}
