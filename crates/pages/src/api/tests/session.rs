//! Tests of sessions and tokens.

use super::{Ask, Site};
use crate::api::refusal::PageRefusal;

fn with<'a>(cookie: &'a str, fields: &[(&'a str, &'a str)]) -> Ask<'a> {
    Ask { fields: [&[("cookie", cookie)], fields].concat(), ..Ask::default() }
}

#[test]
fn what_is_put_in_comes_back() {
    let site = Site::new();
    let first = site.run(&Ask::default(), "session.user = 'ann' session.cart = {1, 2}");
    let cookie = first.cookie();
    assert!(
        cookie.starts_with("session=")
            && first.field("Set-Cookie").unwrap().ends_with("; Path=/; HttpOnly; SameSite=Lax")
    );
    assert_eq!(first.field("Vary"), Some("Cookie"));
    let ask = with(&cookie, &[]);
    let second = site.run(&ask, "__r(session.user .. #session.cart)");
    // Nothing changed: nothing is set again.
    assert_eq!((&*second.text, second.field("Set-Cookie")), ("ann2", None));
    // Not looked at: nothing is said at all.
    assert!(site.run(&ask, "__r('x')").fields.is_empty());
    // A change deep within is seen.
    let third = site.run(&ask, "table.insert(session.cart, 3)").cookie();
    assert_eq!(site.value_of(&with(&third, &[]), "#session.cart"), "3");
    let gone = site.run(&ask, "session:clear()");
    assert!(gone.field("Set-Cookie").unwrap().starts_with("session=; Path=/; Max-Age=0"));
    assert_ne!(site.run(&ask, "session.renew()").cookie(), cookie);
}

#[test]
fn a_session_is_gone_through() {
    let site = Site::new();
    let cookie = site.run(&Ask::default(), "session.a = 1 session.b = 'two' session.c = { 3 }").cookie();
    let ask = with(&cookie, &[]);
    for all in ["pairs(session)", "session"] {
        let code = format!(
            "local n = 0 for name, value in {all} do n += 1 __r(name .. type(value)) session[name] = nil end __r(n)"
        );
        let answered = site.run(&ask, &code);
        assert_eq!(answered.error, None);
        let text = &answered.text;
        assert!(text.ends_with('3') && text.len() == 1 + 3 + "numberstringtable".len(), "{text}");
        for part in ["anumber", "bstring", "ctable"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(site.value_of(&with(&answered.cookie(), &[]), "session.a"), "nil");
        assert_eq!(answered.fields.iter().find(|(name, _)| name == "Vary").map(|(_, value)| &**value), Some("Cookie"));
    }
    assert_eq!(site.run(&Ask::default(), "for _ in pairs(session) do __r('x') end").text, "");
}

#[test]
fn what_was_changed_by_others_is_empty() {
    let site = Site::new();
    let cookie = site.run(&Ask::default(), "session.admin = false").cookie();
    let forged = format!("{}A", &cookie[..cookie.len() - 1]);
    let forged = if forged == cookie { format!("{}B", &cookie[..cookie.len() - 1]) } else { forged };
    for wrong in [forged.as_str(), "session=", "session=x", "__Host-session=x"] {
        assert_eq!(site.value_of(&with(wrong, &[]), "session.admin"), "nil", "{wrong}");
    }
    // Over https it has another name, and another's cookie is not taken.
    let secure = Ask { secure: true, fields: vec![("cookie", cookie.as_str())], ..Ask::default() };
    assert_eq!(site.value_of(&secure, "session.admin"), "nil");
    let set = site.run(&secure, "session.a = 1");
    assert!(set.field("Set-Cookie").unwrap().starts_with("__Host-session="));
    assert!(set.field("Set-Cookie").unwrap().contains("; Secure"));
}

#[test]
fn what_cannot_be_kept() {
    let site = Site::new();
    for (code, part) in [
        ("session.a = string.rep('x', 4000)", "store the rest in the database"),
        ("session.a = print", "JSON"),
        ("session[1] = 2", "must be strings"),
        ("session.clear = 2", "readonly"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part) && error.starts_with("test.luau:1:"), "{code}: {error}");
    }
    // The value before stays.
    let answered =
        site.run(&Ask::default(), "session.a = 1 pcall(function() session.a = print end) __r(tostring(session.a))");
    assert_eq!(answered.text, "1");
    let none = Site::with(|settings| settings.secret = None);
    assert!(none.error("session.a = 1").contains("secret"));
    assert!(none.error("csrf.token()").contains("secret"));
}

#[test]
fn a_form_needs_its_token() {
    let site = Site::new();
    let first = site.run(&Ask::default(), "__r(csrf.field())");
    let cookie = first.cookie();
    let token =
        first.text.strip_prefix("<input type=\"hidden\" name=\"csrf\" value=\"").unwrap().strip_suffix("\">").unwrap();
    let check = "csrf.check() __r('passed ' .. tostring(request.form().a))";
    let body = format!("a=1&csrf={token}");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let send = |cookie: &str, body: &str| {
        let ask = Ask { method: Some("POST"), content: Some(body.as_bytes()), ..with(cookie, &[form]) };
        site.run(&ask, check)
    };
    assert_eq!(send(&cookie, &body).text, "passed 1");
    // The session is kept, though nothing is in it.
    assert_eq!(send(&cookie, &body).field("Set-Cookie"), None);
    let header = with(&cookie, &[("X-CSRF-Token", token)]);
    assert_eq!(site.run(&header, check).text, "passed nil");
    let other = site.run(&Ask::default(), "__r(csrf.field())").cookie();
    for (cookie, body) in
        [(&*cookie, "a=1"), (&*cookie, "csrf="), (&*cookie, "csrf=AAAA"), (&*other, &*body), ("", &*body)]
    {
        let refused = send(cookie, body);
        assert_eq!(refused.refusal, Some(PageRefusal::CsrfInvalid), "{cookie} {body}");
        assert!(refused.error.unwrap().contains("403"));
    }
    // Who has no session has no token either: what was sent is not even read.
    let ask = Ask { method: Some("POST"), content: Some(body.as_bytes()), ..with("", &[form]) };
    let unread = site.run(&ask, "pcall(csrf.check) __r(request.text())");
    assert_eq!((&*unread.text, unread.error), (&*body, None));
    // A page that logs in parts with the old session: tokens that others may know are worth nothing then.
    let renewed = site.run(&with(&cookie, &[]), "session.user = 'ann' session:renew()").cookie();
    assert_eq!(send(&renewed, &body).refusal, Some(PageRefusal::CsrfInvalid));
}

#[test]
fn after_a_flush_it_is_too_late() {
    let site = Site::new();
    let cookie = site.run(&Ask::default(), "session.a = 1").cookie();
    let ask = with(&cookie, &[]);
    for code in [
        "flush() local x = session.a",
        "local x = session.a flush() session.a = 2",
        "local x = session.a flush() session:clear()",
    ] {
        assert!(site.run(&ask, code).error.unwrap().contains("flush()"), "{code}");
    }
    // A token for a session that the browser has needs no cookie.
    assert_eq!(site.run(&ask, "local x = session.a flush() csrf.token() __r(tostring(session.a))").text, "1");
    assert!(site.error("local x = session.a flush() csrf.token()").contains("flush()"));
}
