//! A run: the worker with its parts, and the simulation beside it.

use super::end::End;
use super::{Event, Figures, OriginEnd, STEPS_MAX, Violation, World};
use crate::origin::{BEGUN_UNIX_S, Ending, Origin, Received};
use crate::scenario::{Fault, Scenario};
use flatout_access_log::WorkerLog;
use flatout_engine::Engine;
use flatout_engine::spec::{Sources, Spec};
use flatout_os::clock::SettableClock;
use flatout_os::connecting::SimulatedNetwork;
use flatout_os::random::KeyedHashState;
use flatout_overload::{ClientCounter, ClientLimit};
use flatout_proxy::Accelerator;
use flatout_serve::cache::CacheLimits;
use flatout_serve::files::Services;
use flatout_server::counters::Counters;
use flatout_server::{
    ConnectionCounters, Listener, Phase, Protocol, Settings, WorkerParts, command_channel, phase_channel, run_worker,
};
use flatout_store::StoreSettings;
use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::catch_unwind;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use tokio::sync::watch::Sender;
use tokio::task::yield_now;

/// Lets the worker run until it waits: for a connection, a timer or nothing.
async fn settle(world: &RefCell<World>) {
    let mut rests = 0;
    while rests < 2 {
        // The first lets every task run that is ready, the second those that they woke.
        yield_now().await;
        yield_now().await;
        rests = if world.borrow_mut().exchange() { 0 } else { rests + 1 };
    }
}

async fn drive(world: Rc<RefCell<World>>, phases: Sender<Phase>) {
    let last_ms = world.borrow().scenario.actions.last().map_or(0, |action| action.at_ms);
    loop {
        settle(&world).await;
        let mut world = world.borrow_mut();
        world.check_budgets();
        world.figures.steps += 1;
        if world.figures.steps > STEPS_MAX {
            world.fail(0, "the simulation does not come to rest");
        }
        if world.violation.is_some() || !world.step(last_ms) {
            break;
        }
    }
    // The visitors leave, and background requests end.
    world.borrow_mut().clients.clear();
    for _ in 0..400 {
        settle(&world).await;
        let mut world = world.borrow_mut();
        let Some(tick) = world.clock.until_next_tick() else { break };
        world.clock.advance(tick);
        world.now_ms += tick.as_millis() as u64;
        world.origins.iter_mut().for_each(|origin| origin.end.stream = None);
    }
    let _ = phases.send(Phase::Abandon);
}

thread_local! {
    /// The last panic on this thread, which may be that of a task.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `scenario`.
///
/// # Errors
/// The first invariant that does not hold.
pub fn run(scenario: &Scenario) -> Result<Figures, Violation> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| std::panic::set_hook(Box::new(|panic| PANIC.set(Some(panic.to_string())))));
    PANIC.take();
    let result = catch_unwind(|| simulate(scenario));
    match (PANIC.take(), result) {
        (None, Ok(result)) => result,
        (panic, _) => Err(Violation { serial: 0, rule: format!("a panic: {}", panic.unwrap_or_default()) }),
    }
}

fn simulate(scenario: &Scenario) -> Result<Figures, Violation> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let broken = |what: &str| Violation { serial: 0, rule: format!("the simulation itself: {what}") };
    let clock = SettableClock::simulating(BEGUN_UNIX_S);
    let _entered = clock.enter();
    let accelerator = Arc::<Accelerator>::default();
    let _ = accelerator.open_store(StoreSettings {
        memory_bytes_max: scenario.settings.memory_bytes_max,
        memory_objects_max: scenario.settings.objects_max,
        descriptors_max: 256,
        disks: Vec::new(),
    });
    let spec = compile(scenario, &accelerator).map_err(|error| broken(&error))?;
    let name = format!("flatout-sim-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let bind = || -> std::io::Result<(SocketAddr, UnixListener)> {
        let address = SocketAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        Ok((address, listener))
    };
    let (address, listener) = bind().map_err(|error| broken(&error.to_string()))?;
    let (commands, obeyed) = command_channel();
    let mut world = World {
        scenario: Rc::new(scenario.clone()),
        accelerator,
        spec: Arc::clone(&spec),
        clock,
        address,
        now_ms: 0,
        order: 0,
        wall_s: 0,
        stepped_order: 0,
        set_back_order: 0,
        events: BinaryHeap::new(),
        clients: Vec::new(),
        origin: Origin::new(scenario),
        origins: Vec::new(),
        purges: Vec::new(),
        expiries: Vec::new(),
        commands,
        asked: HashMap::new(),
        owed: Vec::new(),
        tags: HashMap::new(),
        figures: Figures::default(),
        heads: 0,
        irregular: 0,
        violation: None,
    };
    for (index, action) in scenario.actions.iter().enumerate() {
        world.schedule(action.at_ms, Event::Action(index));
    }
    let world = Rc::new(RefCell::new(world));
    let network = accept_origins(&world);
    let _network = network.enter();
    let counters = Arc::<Counters>::default();
    let (phase_sender, phases) = phase_channel();
    let parts = WorkerParts {
        handler: Engine::new(spec, Arc::<Services>::default(), CacheLimits::DEFAULT, requests()),
        settings: Settings::default(),
        tls: None,
        quic: None,
        listeners: vec![Listener {
            fd: listener.into(),
            id: 0,
            protocol: Protocol::Plain { http2: false },
            proxy_protocol: false,
        }],
        commands: obeyed,
        log: WorkerLog::none(),
        counters: Arc::clone(&counters),
        held: ConnectionCounters::default(),
        phases,
    };
    run_worker(parts, drive(Rc::clone(&world), phase_sender)).map_err(|error| broken(&error.to_string()))?;
    let mut world = world.borrow_mut();
    if world.violation.is_none() {
        world.check_end(&counters);
    }
    world.violation.take().map_or(Ok(world.figures), Err)
}

/// The configuration of `scenario`, for engines with `accelerator`.
pub(super) fn compile(scenario: &Scenario, accelerator: &Arc<Accelerator>) -> Result<Arc<Spec>, String> {
    let config = flatout_config::load_text(&scenario.kdl()).map_err(|error| format!("{error:?}"))?;
    let sources = Sources { accelerator: Some(Arc::clone(accelerator)), ..Sources::default() };
    Spec::compile(&config, &sources).map(Arc::new).map_err(|error| format!("{error:?}"))
}

/// A count of requests without a limit. Counters exist for the rest of the process.
fn requests() -> &'static ClientCounter {
    static REQUESTS: OnceLock<&ClientCounter> = OnceLock::new();
    REQUESTS.get_or_init(|| ClientCounter::leak(ClientLimit::default(), KeyedHashState::new()))
}

/// A network in which each connection leads to the origin of `world`.
fn accept_origins(world: &Rc<RefCell<World>>) -> SimulatedNetwork {
    let world = Rc::downgrade(world);
    SimulatedNetwork::new(move |_| {
        let Some(world) = world.upgrade() else { return Err(ErrorKind::ConnectionRefused.into()) };
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        world.borrow_mut().origins.push(OriginEnd {
            end: End::new(ours),
            peeked: Vec::new(),
            is_busy: false,
            received: Received::default(),
            request_bytes: 0,
            fault: Fault::None,
            asked_order: 0,
            hanging: None,
            pieces: VecDeque::new(),
            piece_delay_ms: 0,
            ending: Ending::Keep,
        });
        Ok(theirs.into())
    })
}
