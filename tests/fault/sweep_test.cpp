// The Nth call of the operating system fails, for every N, once or from then on: each run ends with
// right bytes or the right error, and once the fault is gone everything works and nothing is lost.
#include "fault/scenario.hpp"
#include "rounds.hpp"
#include "unit/frame_memory.hpp"

namespace penstock::fault {

namespace {

struct sweep_case {
    const char* name;
    io_method io;
    std::uint32_t calls;
    bool for_ever;
    int error;
    std::uint64_t step;  // every so manieth call
    bool tier = false;   // with a host tier, and pages read ahead
    direct_mode direct = direct_mode::automatic;
};

void PrintTo(const sweep_case& c, std::ostream* out) { *out << c.name; }

class sweep : public testing::TestWithParam<sweep_case> {};

// Calls of the planned kinds in a run without faults, creation included.
std::uint64_t count_calls(const sample_folder& from, const sweep_case& c) {
    faulty_environment disk;
    fault_plan plan;
    plan.calls = c.calls;
    disk.set(plan);
    const auto rt =
        test::make_runtime(tiny_options(from, c.io, c.tier, c.direct), tiny_hooks(disk));
    scenario clean(rt->ref());
    clean.run();
    EXPECT_EQ(clean.complaints(), "");
    return disk.calls();
}

// What the runtime may answer when the operating system said `error`.
bool excused(const sweep_case& c, std::int64_t got) {
    if (got == c.error) return true;
    if (got == -ESTALE)
        return true;  // a parked file that cannot be found again, or a file that seems to end too
                      // early
    // EAGAIN to an open means "ask again", which it does until its time is over.
    return c.error == -EAGAIN && got == -ETIMEDOUT;
}

}  // namespace

TEST_P(sweep, nth_call_fails) {
    const sweep_case c = GetParam();
    const sample_folder from;
    const std::uint64_t calls = count_calls(from, c);
    ASSERT_GT(calls, 20u) << "the scenario hardly asks the operating system";
    // However short the test is meant to be, it tries some forty calls: many faults are read again
    // and no caller sees them.
    const std::uint64_t step = std::clamp<std::uint64_t>(calls / 40, 1, c.step);
    std::uint64_t runs_with_errors = 0;
    for (std::uint64_t n = 1; n <= calls; n += step) {
        SCOPED_TRACE("call " + std::to_string(n));
        faulty_environment disk;
        fault_plan plan;
        plan.calls = c.calls;
        plan.nth = n;
        plan.for_ever = c.for_ever;
        plan.error = c.error;
        disk.set(plan);
        const auto start = std::chrono::steady_clock::now();
        // In every second run the frames lie in memory of the caller, full of other bytes.
        options o = tiny_options(from, c.io, c.tier, c.direct);
        test::frame_memory memory(*o.cache_bytes);
        if (n / step % 2 != 0) o.cache_memory = memory.data();
        std::unique_ptr<runtime> rt;
        const status created = runtime::make(o, tiny_hooks(disk), rt);
        if (!created) {
            EXPECT_EQ(created.code, c.error) << created.message;
            EXPECT_EQ(disk.handles(), 0);
            ++runs_with_errors;
            continue;
        }
        scenario faulty(rt->ref(), true, [&](std::int64_t got) { return excused(c, got); });
        faulty.run();
        EXPECT_EQ(faulty.complaints(), "");
        runs_with_errors += faulty.errors() > 0 ? 1 : 0;
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5));
        disk.clear();
        scenario healed(rt->ref());
        healed.run();
        EXPECT_EQ(healed.complaints(), "") << "after the fault was gone";
        EXPECT_EQ(what_is_lost(*rt), "");
        rt.reset();
        EXPECT_EQ(disk.handles(), 0);
        EXPECT_TRUE(memory.are_guards_whole());
        if (HasFailure()) return;
    }
    if (c.error != -EINTR && c.error != -EAGAIN) {
        EXPECT_GT(runs_with_errors, 0u) << "no call returned an error";
    }
}

constexpr std::uint64_t coarse = test::sanitizer_slowdown * test::usual_share;

INSTANTIATE_TEST_SUITE_P(
    fault, sweep,
    testing::Values(
        sweep_case{"any_call_once", io_method::automatic, every_call, false, -EIO, coarse},
        sweep_case{"any_call_for_ever", io_method::automatic, every_call, true, -EIO, coarse},
        sweep_case{"pread_once", io_method::pread, every_call, false, -EIO, coarse},
        sweep_case{"pread_for_ever", io_method::pread, call_read, true, -EIO, coarse},
        sweep_case{"no_memory_once", io_method::automatic, every_call, false, -ENOMEM, 2 * coarse},
        sweep_case{"no_memory_for_ever", io_method::automatic, every_call, true, -ENOMEM,
                   3 * coarse},
        sweep_case{"no_handle_for_ever", io_method::automatic, call_find | call_open_found, true,
                   -EMFILE, 2 * coarse},
        sweep_case{"file_ends_early_once", io_method::automatic, call_read, false, 0, coarse},
        sweep_case{"file_ends_early_for_ever", io_method::automatic, call_read, true, 0, coarse},
        sweep_case{"tier_read_once", io_method::automatic, call_read, false, -EIO, coarse, true},
        sweep_case{"tier_read_for_ever", io_method::automatic, call_read, true, -EIO, coarse, true},
        sweep_case{"tier_file_ends_early_once", io_method::automatic, call_read, false, 0, coarse,
                   true},
        sweep_case{"tier_try_again_once", io_method::automatic, call_read, false, -EAGAIN, coarse,
                   true},
        sweep_case{"direct_any_call_once", io_method::automatic, every_call, false, -EIO, coarse,
                   false, direct_mode::on},
        sweep_case{"direct_read_for_ever", io_method::automatic, call_read | call_direct_read, true,
                   -EIO, coarse, true, direct_mode::on},
        sweep_case{"direct_file_ends_early_once", io_method::automatic,
                   call_direct_read | call_read, false, 0, coarse, true, direct_mode::on},
        sweep_case{"direct_by_pread_once", io_method::pread, every_call, false, -EIO, 2 * coarse,
                   false, direct_mode::on},
        sweep_case{"interrupted_once", io_method::automatic, call_read, false, -EINTR, coarse},
        sweep_case{"try_again_once", io_method::automatic,
                   every_call & ~(call_facts | call_real_path), false, -EAGAIN, coarse}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace penstock::fault
