// The actor of the model test of writes: performs one stretch of operations and judges every
// result. On the CPU and, through penstock::launch, on the GPU. All threads of a group run it
// together with equal local state.
#pragma once

#include "model/write_changes.hpp"

namespace penstock::model {

struct write_actor : write_changes {
    std::byte* scratch;            // scratch_stride bytes for each actor of a launch
    std::uint64_t scratch_stride;  // buffer and versions: 5 bytes for each of longest_write, and 64
    std::uint64_t steps;           // per actor

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        write_memory m{};
        m.index = static_cast<std::uint32_t>(index);
        m.floors = reinterpret_cast<version*>(scratch + scratch_stride * index);
        m.buffer = reinterpret_cast<std::byte*>(m.floors + longest_write(w.page_bytes));
        for (held_written& f : m.open) f.fd = -1;
        for (m.step = 0; m.step < steps; ++m.step)
            act(g, fs, m, mixed(w.seed ^ w.round << 20 ^ (sees_others ? 0 : 1), index, m.step));
        for (held_written& f : m.open) shut(g, fs, m, f);
        count(g, &write_report::steps, steps);
    }

private:
    template <typename Group>
    PENSTOCK_HD void act(const Group& g, const runtime_ref& fs, write_memory& m,
                         std::uint64_t op) const {
        held_written& f = m.open[op % written_held];
        const std::uint64_t h = mix64(op ^ 0x77), kind = (op >> 16) % 128;
        if (f.fd < 0) return start(g, fs, m, f, h);
        m.owner = owner_in(w.plans[f.file], m.index);
        if (kind < 4) return shut(g, fs, m, f);
        if (kind < 7) return bring_home(g, fs, m, f, h, false);
        if (kind < 8) return h % 4 == 0 ? bring_home(g, fs, m, f, h >> 2, true) : ask(g, fs, m, f);
        if (kind < 9) return be_refused(g, fs, m, f);
        if (w.plans[f.file].usage == use::log)
            return kind < 90 ? record(g, fs, m, f) : look_back(g, fs, m, f);
        if (w.plans[f.file].usage == use::alone && kind < 18) return cut(g, fs, m, f, h);
        if (w.plans[f.file].usage == use::alone && kind < 28) return add(g, fs, m, f, h);
        if (kind < 80) return put(g, fs, m, f, h);
        return kind < 118 ? fetch(g, fs, m, f, h) : look(g, fs, m, f, h);
    }

    // What is dealt out differs from file to file; an actor that owns nothing only reads.
    PENSTOCK_HD std::uint32_t owner_in(const file_plan& plan, std::uint32_t index) const {
        if (!sees_others) return plan.actors + index;
        return index < plan.actors ? index : ~0u;
    }
    PENSTOCK_HD bool may_use(const write_memory& m, std::uint32_t file) const {
        const file_plan& plan = w.plans[file];
        if (!sees_others) return plan.usage == use::shared && m.index < plan.second;
        return plan.usage == use::shared || plan.usage == use::log ||
               (plan.usage == use::alone && plan.owner == m.index);
    }
    // Some file that it may use, those that it has alone first for a third of the time; or `files`.
    PENSTOCK_HD std::uint32_t choose(const write_memory& m, std::uint64_t h) const {
        const auto first = static_cast<std::uint32_t>((h >> 8) % w.files);
        std::uint32_t found = w.files;
        for (std::uint32_t i = 0; i < w.files; ++i) {
            const std::uint32_t file = (first + i) % w.files;
            if (!may_use(m, file)) continue;
            if (h % 3 == 0 && w.plans[file].usage == use::alone) return file;
            if (found == w.files) found = file;
        }
        return found;
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void start(const Group& g, const runtime_ref& fs, write_memory& m,
                                             held_written& f, std::uint64_t h) const {
        const std::uint32_t file = choose(m, h);
        if (file == w.files) return;
        file_shadow& s = w.shadows[file];
        const bool there =
                       g.broadcast(g.is_leader() ? atomic_load<order::acquire>(&s.there) : 0) != 0,
                   is_log = w.plans[file].usage == use::log;
        constexpr std::uint32_t some_access[] = {open_read,       open_write,      open_read_write,
                                                 open_read_write, open_read_write, open_read_write};
        std::uint32_t access = some_access[(h >> 3) % 6];
        if ((!there || is_log) && access == open_read) access = open_read_write;
        int flags = static_cast<int>(access);
        if (!there || is_log || (access != open_read && (h >> 5) % 4 == 0)) flags |= open_create;
        if (is_log) flags |= open_truncate;
        if (g.is_leader()) name_of_written(file, reinterpret_cast<char*>(m.buffer));
        g.sync();  // the name is in the buffer before the group reads it
        f.fd = open(g, fs, reinterpret_cast<const char*>(m.buffer), flags);
        if (f.fd < 0) {
            expect(g, m, write_verb::open, file, static_cast<std::uint64_t>(flags), there ? 1 : 0,
                   f.fd, 0);
            return;
        }
        f = {f.fd, file, access, 0, 0};
        if (!there && g.is_leader() &&
            atomic_exchange<order::acq_rel>(&s.there, std::uint64_t{1}) == 0)
            atomic_add_relaxed(&out->creates, std::uint64_t{1});
        count(g, &write_report::reopens);
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void shut(const Group& g, const runtime_ref& fs,
                                            const write_memory& m, held_written& f) const {
        if (f.fd < 0) return;
        expect(g, m, write_verb::close, f.file, 0, 0, close(g, fs, f.fd), 0);
        f.fd = -1;
    }

    // The file is there, so it cannot be made.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void be_refused(const Group& g, const runtime_ref& fs,
                                                  const write_memory& m,
                                                  const held_written& f) const {
        if (g.is_leader()) name_of_written(f.file, reinterpret_cast<char*>(m.buffer));
        g.sync();
        const int got = open(g, fs, reinterpret_cast<const char*>(m.buffer),
                             open_write | open_create | open_exclusive);
        expect(g, m, write_verb::refused, f.file, 0, 0, got, -EEXIST);
        count(g, &write_report::refusals);
    }
};

}  // namespace penstock::model
