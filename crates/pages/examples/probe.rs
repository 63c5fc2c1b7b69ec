use mlua::{Function, Lua, LuaString, VmState};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;
fn time(name: &str, mut f: impl FnMut()) {
    let n = 200_000;
    for _ in 0..n / 10 {
        f()
    }
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t = Instant::now();
        for _ in 0..n {
            f()
        }
        best = best.min(t.elapsed().as_nanos() as f64 / n as f64);
    }
    println!("{name:40} {best:8.1} ns");
}
fn main() -> mlua::Result<()> {
    for mode in 0..4 {
        let interrupt = mode & 1 == 1;
        let limit = mode & 2 == 2;
        println!("interrupt {interrupt} limit {limit}");
        let lua = Lua::new();
        let out: Rc<RefCell<(Vec<u64>, Vec<u8>)>> = Rc::default();
        let o = out.clone();
        lua.globals().set(
            "__s",
            lua.create_function(move |_, n: u32| {
                o.borrow_mut().0.push(n as u64);
                Ok(())
            })?,
        )?;
        let o = out.clone();
        lua.globals().set(
            "__w",
            lua.create_function(move |_, s: LuaString| {
                o.borrow_mut().1.extend_from_slice(&s.as_bytes());
                Ok(())
            })?,
        )?;
        let o = out.clone();
        lua.globals().set(
            "__v",
            lua.create_function(move |_, s: mlua::Value| {
                if let mlua::Value::String(s) = s {
                    o.borrow_mut().1.extend_from_slice(&s.as_bytes());
                }
                Ok(())
            })?,
        )?;
        let o = out.clone();
        lua.globals().set(
            "__o",
            lua.create_function(move |_, (a, s, b): (u32, mlua::Value, u32)| {
                let mut o = o.borrow_mut();
                o.0.push(a as u64);
                if let mlua::Value::String(s) = s {
                    o.1.extend_from_slice(&s.as_bytes());
                }
                o.0.push(b as u64);
                Ok(())
            })?,
        )?;
        let td = lua.create_string("Sat, 21 Nov 2026 10:00:00 GMT")?;
        let td2 = td.clone();
        lua.globals().set("TIMEDATE", lua.create_function(move |_, ()| Ok(td2.clone()))?)?;
        lua.globals().set("noop", lua.create_function(move |_, ()| Ok(()))?)?;
        lua.globals()
            .set("TD2", lua.create_function(move |lua, ()| lua.create_string("Sat, 21 Nov 2026 10:00:00 GMT"))?)?;
        lua.sandbox(true)?;
        let count = Rc::new(Cell::new(0u32));
        if interrupt {
            let c = count.clone();
            lua.set_interrupt(move |_| {
                c.set(c.get() + 1);
                Ok(VmState::Continue)
            });
        }
        if limit {
            lua.set_memory_limit(1 << 30)?;
        }
        let th = lua.create_thread(lua.load("").into_function()?)?;
        let chunk = |src: &str| -> Function { lua.load(src).into_function().unwrap() };
        for (name, src) in [
            ("empty", ""),
            ("TIMEDATE", "local _ = TIMEDATE()"),
            ("TD2", "local _ = TD2()"),
            ("noop", "noop()"),
            ("s", "__s(0)"),
            ("s s", "__s(0) __s(1)"),
            ("w const", "__w('a')"),
            ("v const", "__v('a')"),
            ("o", "__o(0, TIMEDATE(), 1)"),
            ("page", "__s(0) __w(TIMEDATE()) __s(1)"),
            ("return", "return 0, TIMEDATE(), 1"),
            ("table", "local t = {0, TIMEDATE(), 1}"),
            ("loop 100", "for i = 1, 100 do end"),
        ] {
            let f = chunk(src);
            time(name, || {
                let mut b = out.borrow_mut();
                b.0.clear();
                b.1.clear();
                drop(b);
                th.reset(f.clone()).unwrap();
                th.resume::<()>(()).unwrap();
            });
        }
        let f = chunk("return 0, TIMEDATE(), 1");
        time("return read", || {
            th.reset(f.clone()).unwrap();
            let v = th.resume::<(u32, LuaString, u32)>(()).unwrap();
            std::hint::black_box(v);
        });
        let f = chunk("");
        time("reset only", || {
            th.reset(f.clone()).unwrap();
        });
        time("call direct", || {
            f.call::<()>(()).unwrap();
        });
        let env = lua.create_table()?;
        time("env is_empty", || {
            std::hint::black_box(env.is_empty());
        });
        time("used_memory", || {
            std::hint::black_box(lua.used_memory());
        });
        time("set_memory_limit", || {
            std::hint::black_box(lua.set_memory_limit(if limit { 1 << 30 } else { 0 }).unwrap());
        });
        time("Instant", || {
            std::hint::black_box(Instant::now());
        });
    }
    Ok(())
}
