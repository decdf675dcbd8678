// The service threads of a device and their rings: how many, of what size, and the helpers that are
// made while requests wait; and the blocks of a store that they take.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <sys/resource.h>
#include <utility>

#include "runtime/runtime_state.hpp"
#include "store/agent_store.hpp"

namespace penstock::host {

// How many rings, and of how many slots. On a GPU each service thread has several, so that few
// groups claim from one tail; but none of fewer slots than groups may well want of it at a time.
ring_shape runtime_state::shape_of_rings(std::uint64_t stride) const {
    constexpr std::uint64_t most_rings = 128, enough_slots = 32;
    static_assert(most_rings <= engine::max_rings);
    const std::uint64_t threads = *settings.service_threads,
                        fitting = *settings.staging_bytes / stride / threads;
    std::uint64_t each = hooks.rings_per_thread;
    if (each == 0)
        each = device->is_gpu() && hooks.ring_slots == 0
                   ? std::clamp<std::uint64_t>(
                         std::min(most_rings / threads, fitting / enough_slots), 1, most_rings)
                   : 1;
    const std::uint64_t slots =
        hooks.ring_slots != 0 ? hooks.ring_slots
                              : std::bit_floor(std::clamp<std::uint64_t>(fitting / each, 4, 4096));
    return {static_cast<std::uint32_t>(threads * each), static_cast<std::uint32_t>(slots)};
}

status runtime_state::build_rings() {
    engine::cache_view& c = ref.view;
    // A slot's staging area also carries the name of an open request.
    // One that carries a page to its file has the marks of its bytes behind them. Direct reads want
    // each area to begin at a multiple of 4096.
    const std::uint64_t carried =
        settings.page_bytes + (settings.writable ? settings.page_bytes / 8 : 0);
    const std::uint64_t stride =
        std::max<std::uint64_t>((carried + 4095) & ~std::uint64_t{4095}, 4096);
    const ring_shape shape = shape_of_rings(stride);
    const std::uint64_t slots = shape.slots, all_slots = slots * shape.rings;
    // words: no two tails in one line of the second-level cache.
    constexpr std::uint64_t tail_stride = 32;
    c.ring_count = shape.rings;
    c.ring_threads = *settings.service_threads;
    std::vector<std::uint64_t> first_tickets(all_slots);
    for (std::uint64_t i = 0; i < all_slots; ++i) first_tickets[i] = i % slots;
    auto* const requests = static_cast<engine::ring_request*>(
        device->allocate_shared(all_slots * sizeof(engine::ring_request)));
    auto* const replies = static_cast<engine::ring_reply*>(
        device->allocate_shared(all_slots * sizeof(engine::ring_reply)));
    auto* const staging = static_cast<std::byte*>(device->allocate_shared(all_slots * stride));
    std::uint64_t *tails = nullptr, *free_tickets = nullptr;
    if (requests == nullptr || replies == nullptr || staging == nullptr ||
        !allocate(*device, tails, c.ring_count * tail_stride) ||
        !allocate(*device, free_tickets, all_slots) ||
        device->upload(free_tickets, first_tickets.data(), all_slots * sizeof(std::uint64_t)) != 0)
        return {-ENOMEM, "staging_bytes: " + format_size(*settings.staging_bytes) +
                             " of host memory could not be allocated: " + device->shortage() +
                             "; give less"};
    heads.resize(c.ring_count);
    for (std::uint32_t i = 0; i < *settings.service_threads; ++i)
        doorbells.push_back(
            device->is_gpu() || hooks.no_doorbells ? nullptr : std::make_unique<host_doorbell>());
    std::vector<engine::ring_view> views(c.ring_count);
    std::vector<std::vector<host_ring>> of_thread(*settings.service_threads);
    for (std::uint32_t i = 0; i < c.ring_count; ++i) {
        engine::ring_view& r = views[i];
        const std::uint32_t thread = i % *settings.service_threads;
        r.slots = shape.slots;
        r.staging_stride = stride;
        r.requests = requests + i * slots;
        r.replies = replies + i * slots;
        r.staging = staging + i * slots * stride;
        r.tail = tails + i * tail_stride;
        r.free_ticket = free_tickets + i * slots;
        r.doorbell = doorbells[thread].get();
        all_rings.push_back(
            {r.requests, r.replies, r.staging, stride, r.slots, &heads[i].next_ticket});
        of_thread[thread].push_back(all_rings.back());
    }
    if (!allocate(*device, c.rings, c.ring_count) ||
        device->upload(c.rings, views.data(), views.size() * sizeof(engine::ring_view)) != 0)
        return {-ENOMEM, "the rings could not be placed on " + device->name() + ": " +
                             device->shortage() + "; give a smaller cache_bytes"};
    return build_services(of_thread);
}

// Refusal costs speed only, so it is said where there is a cure.
void runtime_state::let_register(service_settings& of_service,
                                 const std::vector<host_ring>& rings) {
    if (!settings.registered_buffers || settings.direct_io == direct_mode::off) return;
    std::vector<memory_area> staging;
    for (const host_ring& ring : rings)
        staging.push_back({ring.staging, ring.slots * ring.staging_stride});
    // Pages are read into the tier in order, and in order nothing goes past the page cache unless
    // told so.
    memory_area tier;
    if (settings.direct_io == direct_mode::on)
        tier = {of_service.tier.frames,
                std::uint64_t{of_service.tier.frame_count} * settings.page_bytes};
    rlimit locked{};
    if (::getrlimit(RLIMIT_MEMLOCK, &locked) != 0) return;
    of_service.to_register =
        areas_to_register(staging, tier, *settings.service_threads * device_count, locked.rlim_cur);
    of_service.register_refused = [this, limit = std::uint64_t{locked.rlim_cur}](
                                      std::uint64_t bytes, int code) {
        if (code != -ENOMEM || limit == RLIM_INFINITY || register_refusal_said.exchange(true))
            return;
        say("io_uring: the kernel pins no " + format_size(bytes) +
            " for direct reads, which go on at more cost; raise RLIMIT_MEMLOCK (ulimit -l), now " +
            format_size(limit) + ", or set PENSTOCK_REGISTERED_BUFFERS=off");
    };
}

// Once: what one thread is refused, those that are made after it mostly are.
void runtime_state::say_reads_with_pread(const std::string& why) {
    if (!uring_refusal_said.exchange(true)) say("reading with pread: " + why);
}

// The queue of a service thread that serves these rings.
std::unique_ptr<io_engine> runtime_state::make_queue(bool want_uring,
                                                     const std::vector<host_ring>& rings,
                                                     std::string& why) {
    const auto depth = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(rings.size() * rings.front().slots, 1024));
    return hooks.env->make_io_engine(want_uring, depth, why);
}

service_settings runtime_state::settings_of_service() {
    const engine::cache_view& c = ref.view;
    service_settings out;
    out.page_shift = c.page_shift;
    out.watch = watch;
    out.write_errors = write_errors;
    out.asked = asked.get();
    out.blocks = blocks.get();
    out.crew = crew.get();
    if (hooks.frame_copy_wait_ns != 0) out.frame_copy_wait_ns = hooks.frame_copy_wait_ns;
    if (hooks.drain_ns != 0) out.drain_ns = hooks.drain_ns;
    if (c.tier.frames != nullptr) out.tier = {c.tier.frames, tier_done_marks, c.tier.frame_count};
    return out;
}

// The first device, which ends last, has the threads and the blocks of all.
void runtime_state::build_blocks() {
    if (first_device != nullptr) blocks = first_device->blocks;
    if (blocks != nullptr || (settings.block_store.empty() && !hooks.make_store)) return;
    block_settings of_blocks;
    of_blocks.space = settings.block_store_namespace;
    of_blocks.wait_ns = std::uint64_t{settings.block_store_wait_ms} * 1'000'000;
    of_blocks.local_files = settings.block_store_local;
    of_blocks.trust = settings.trust_times;
    of_blocks.say = [this](const std::string& line) { say(line); };
    if (!settings.block_store.empty()) ask_agent_about_rests(settings.block_store);
    if (hooks.set_blocks) hooks.set_blocks(of_blocks);
    const auto make_agent = [this] { return std::make_unique<agent_store>(settings.block_store); };
    blocks = std::make_shared<block_reader>(
        *hooks.env, of_blocks,
        hooks.make_store ? hooks.make_store : block_reader::store_maker(make_agent));
}

// Threads that wait for a disk need no processor. Those that copy from the page cache do; on CPU
// threads the callers need the others.
void runtime_state::build_crew() {
    const std::uint32_t base = *settings.service_threads,
                        most = *settings.most_service_threads - base,
                        processors = std::max(1u, std::thread::hardware_concurrency()),
                        for_service = device->is_gpu() ? processors : processors / 2;
    crew = std::make_unique<service_crew>(most,
                                          std::min(most, for_service - std::min(for_service, base)),
                                          [this] { call_monitor(); });
    helpers.resize(most);
}

status runtime_state::build_services(const std::vector<std::vector<host_ring>>& rings_of_thread) {
    watch = std::make_shared<idle_watch>();
    build_blocks();
    build_crew();
    write_errors =
        std::make_shared<write_error_log>([this](const std::string& line) { say(line); });
    for (std::uint32_t i = 0; i < *settings.service_threads; ++i) {
        const std::vector<host_ring>& rings = rings_of_thread[i];
        std::string why;
        std::unique_ptr<io_engine> io;
        if (settings.io != io_method::pread) io = make_queue(true, rings, why);
        if (io == nullptr && settings.io == io_method::uring)
            return {-EOPNOTSUPP, "io: uring was asked for, but " + why + "; or use auto or pread"};
        if (io == nullptr && settings.io == io_method::automatic) say_reads_with_pread(why);
        if (io == nullptr) io = make_queue(false, rings, why);
        service_settings of_service = settings_of_service();
        if (std::string(io->name()) == "io_uring") let_register(of_service, rings);
        services.push_back(std::make_unique<service>(rings, *files, *hooks.env, std::move(io),
                                                     doorbells[i].get(), of_service));
    }
    settings.io =
        std::string(services[0]->io_name()) == "io_uring" ? io_method::uring : io_method::pread;
    return {};
}

// Its memory is not registered with io_uring: all helpers would pin all of the staging memory.
void runtime_state::make_helper(bool for_stall) {
    host_doorbell* const bell = crew->next_bell();
    if (bell == nullptr) return;
    std::string why;
    try {
        std::unique_ptr<io_engine> io;
        if (settings.io == io_method::uring) {
            io = make_queue(true, all_rings, why);
            if (io == nullptr) say_reads_with_pread(why);
        }
        if (io == nullptr) io = make_queue(false, all_rings, why);
        service_settings of_service = settings_of_service();
        of_service.is_helper = true;
        auto helper = std::make_unique<service>(all_rings, *files, *hooks.env, std::move(io), bell,
                                                of_service);
        helper->start();
        helpers[crew->made()] = std::move(helper);
        crew->count_made(for_stall);
    } catch (...) {
        const bool is_first = crew->refuse(std::chrono::nanoseconds(hooks.thread_retry_ns));
        const status why = status_of_exception("no more service threads, though requests wait: ");
        if (is_first) say(why.message);
    }
}

// With each beat, and not when the monitor was called: a thread is stalled if it has done no round
// since the last look. On a busy machine it may also have had no processor, and then a helper is
// woken for little.
void runtime_state::look_at_threads() {
    bool any_stalled = false, requests_wait = false, any_helps = false;
    seen_rounds.resize(services.size() + helpers.size());
    std::size_t number = 0;
    for_each_thread([&](const service& each, bool is_helper) {
        const std::uint64_t rounds = each.rounds(),
                            before = std::exchange(seen_rounds[number++], rounds);
        const bool is_stalled = each.alive() && rounds == before && !each.is_asleep();
        any_stalled |= is_stalled;
        requests_wait |= is_stalled && each.any_is_posted();
        any_helps |= is_helper && each.alive() && rounds != before;
    });
    crew->say_stalled(any_stalled);
    if (requests_wait && !any_helps && !crew->wake_for_stall()) make_helper(true);
}

// All of them at once: a file that is read for the first time is through in some ten beats. Those
// that are not wanted sleep.
void runtime_state::make_wished_helpers() {
    if (!crew->take_wish_for_more()) return;
    while (crew->lacks_for_backlog() && crew->next_bell() != nullptr) make_helper(false);
}

}  // namespace penstock::host
