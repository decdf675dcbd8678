// penstock replay: plays a trace of page accesses through a buffer of host and device memory.
#include "command.hpp"

#include <algorithm>
#include <bit>

#include "common/numbers.hpp"
#include "common/process.hpp"
#include "replay_run.hpp"

namespace penstock::cli {

namespace {

using apps::parse_number;
using buffer::policy_kind;
using replay::outcome;

constexpr std::uint64_t least_buffer_pages = 2, most_buffer_pages = std::uint64_t{1} << 31,
                        most_absent = std::uint64_t{1} << 31;

double ratio(double part, double all) { return all > 0 ? part / all : 0.0; }

double share_of(std::uint64_t part, std::uint64_t all) {
    return ratio(static_cast<double>(part), static_cast<double>(all));
}

const command_text replay_text = {
    "replay",
    "Plays a trace of page accesses through a buffer of host and device memory, and says where the "
    "pages were found.\n",
    "\nnative has the host's part alone; gram puts what it drops into the device's; dedu also "
    "keeps equal blocks only once.\nSizes are whole pages of the trace, at least two. With "
    "--simulate the trace is read once and may be a pipe. Otherwise its files are read, and with\n"
    "--writes changed: past the operating system's page cache, so that the sizes mean something; "
    "native and gram then need 2 pages of the host for each thread, and one more.\n"
    "However it ends, what was written is in the files.\n",
    false, "replay: "};

class replay_command : public command {
public:
    replay_command() : command(replay_text) {}

    void add_options(apps::option_list& add) override {
        add.operand("TRACE", trace_, "The trace, in text or binary form");
        add.flag("--simulate", simulate_, "Only count; read and write none of the trace's files");
        add.choice("--policy", policy_, policy_names(), "policy", "native, gram or dedu (required)",
                   "POLICY");
        add.choice("--order", order_, {"lru", "clock"}, "order",
                   "How the host's part chooses what goes: lru or clock (default lru)", "ORDER");
        add.text("--ram", ram_, "Size of the host's part (required)", "SIZE");
        add.text("--gpu", gpu_, "Size of the device's part; native does without", "SIZE");
        add.text("--blocks", blocks_,
                 "Blocks that dedu cuts a page into: a power of two (default 4)", "N");
        add.number("--table", table_, {least_buffer_pages, most_buffer_pages, ""},
                   "Pages that dedu knows at once, at least 2 (default: 8 times those of both "
                   "parts)",
                   "N");
        add.number("--absent", absent_, {0, most_absent, ""},
                   "Blocks that dedu knows beside those in memory (default: twice as many as in "
                   "memory; 0: none)",
                   "N");
        add.number("--threads", threads_, {1, 1024, ""}, "Threads that access pages (default 1)",
                   "N");
        add.choice("--backend", backend_, {"cpu", "gpu"}, "backend",
                   "Where the device's part lies: gpu or cpu (default: a GPU if there is one)",
                   "NAME");
        add.choice("--signature", signature_, {"quick", "md5"}, "signature",
                   "What dedu finds equal blocks by: quick or md5 (default quick)", "NAME");
        add.choice("--sign-on", sign_on_, {"cpu", "device"}, "place for signatures",
                   "Where dedu makes signatures: cpu, each thread its page's, or device, a "
                   "batch's at once (default cpu)",
                   "NAME");
        add.number("--batch", batch_, {1, 4096, ""},
                   "Pages that gram moves or dedu handles at once, at most (default 256)", "N");
        add.number("--batch-wait", batch_wait_, {0, 1'000'000, ""},
                   "Microseconds in which others may join a batch (default 0)", "N");
        add.flag("--always-dedu", always_dedu_,
                 "Look for equal blocks also in files that have hardly any");
        add.flag("--always-gram", always_gram_,
                 "Use gram's device part also where it costs more than it saves");
        add.flag("--cached", run_.cached,
                 "Read and write through the operating system's page cache, not past it");
        add.flag("--writes", run_.writes, "The trace's files may be changed: its writes are done");
        add.flag("--verify", run_.verify,
                 "Compare each page that is read with what the trace says it holds");
        add.flag("--json", common.json, "Print exactly one JSON object on standard output");
        add.flag("--quiet", common.quiet, "Print nothing but errors, and what --json asks for");
    }

    status check() override {
        shape_.policy = policy_named(policy_);
        if (order_ == "clock") shape_.order = buffer::order_kind::clock;
        if (threads_ != not_given) run_.threads = threads_;
        if (batch_ != not_given) run_.batch_pages = batch_;
        if (batch_wait_ != not_given) run_.batch_wait_us = batch_wait_;
        run_.where = backend_named(backend_);
        if (signature_ == "md5") run_.dedu.signature = buffer::signature_kind::md5;
        run_.dedu.sign_on_device = sign_on_ == "device";
        run_.dedu.adaptive = !always_dedu_;
        run_.stands_back = !always_gram_;
        const bool dedu = shape_.policy == policy_kind::dedu,
                   native = shape_.policy == policy_kind::native;
        return first_mistake(
            {{policy_.empty(), "--policy is missing; give native, gram or dedu"},
             {ram_.empty(),
              "--ram is missing: how much host memory there is; give a size such as 256MiB"},
             {!dedu && !blocks_.empty(),
              "--blocks: only dedu has blocks; leave it out, or give --policy dedu"},
             {!dedu && table_ != not_given,
              "--table: only dedu has such a limit; leave it out, or give --policy dedu"},
             {!dedu && absent_ != not_given,
              "--absent: only dedu knows absent blocks; leave it out, or give --policy dedu"},
             {!native && gpu_.empty(), "--gpu is missing: how much device memory " + policy_ +
                                           " has; give a size such as 256MiB"},
             {native && run_.where == backend::gpu,
              "--backend: native has no part on a device; leave it out, or give --policy gram or "
              "dedu"},
             {simulate_ && (threads_ != not_given || !backend_.empty() || run_.cached ||
                            run_.writes || run_.verify),
              "--threads, --backend, --cached, --writes and --verify are of a replay against "
              "files; leave them out, or --simulate"},
             {run_.verify && run_.writes && run_.threads > 1,
              "--verify with --writes needs one thread, for of two that write a page the last one "
              "is not known; leave one out"},
             {(simulate_ || native) && (batch_ != not_given || batch_wait_ != not_given),
              "--batch and --batch-wait are of gram and dedu against files; leave them out, or "
              "give --policy gram or dedu and no --simulate"},
             {(simulate_ || dedu || native) && always_gram_,
              "--always-gram is of gram against files; leave it out, or give --policy gram and no "
              "--simulate"},
             {(simulate_ || !dedu) && (!signature_.empty() || !sign_on_.empty() || always_dedu_),
              "--signature, --sign-on and --always-dedu are of dedu against files; leave them "
              "out, or give --policy dedu and no --simulate"}});
    }

    status run() override {
        trace::reader from;
        if (status s = from.open(trace_); !s) return s;
        used_wrongly = true;
        if (status s = settle_limits(from.header()); !s) return s;
        used_wrongly = false;
        if (!simulate_)
            if (status s = apps::watch_signals(); !s) return s;
        outcome done;
        status ended = simulate_ ? replay::simulate(from, shape_, done)
                                 : replay::run_against_files(trace_, shape_, run_, done);
        return ended.ok() ? report(json_of(done), text_of(done)) : ended;
    }

private:
    // How many pages a size is. `there` is how many the trace can ask for: what is larger is never
    // full, so its tables need be no larger.
    status settle_size(const char* flag, const std::string& text, std::uint64_t there,
                       std::uint64_t& bytes, std::uint32_t& pages) const {
        if (text.empty()) return {};
        if (status s = parse_size(flag, text, bytes); !s) return s;
        const std::string begin = std::string(flag) + ": " + apps::shown(text) + " is ",
                          of_pages = " of the trace's pages of " + std::to_string(page_bytes_) +
                                     " bytes; give ";
        if (bytes % page_bytes_ != 0)
            return {-EINVAL, begin + "no whole number" + of_pages + "a multiple of them"};
        if (bytes / page_bytes_ < least_buffer_pages)
            return {-EINVAL, begin + "less than two" + of_pages + "at least " +
                                 std::to_string(least_buffer_pages * page_bytes_)};
        pages = static_cast<std::uint32_t>(std::min(
            {bytes / page_bytes_, std::max(there, least_buffer_pages), most_buffer_pages}));
        return {};
    }

    status settle_limits(const trace::trace_header& header) {
        std::uint64_t there = 0;  // pages of all files, or so many that it does not matter
        for (const trace::file_entry& file : header.files)
            there = std::min(there + std::min(file.pages, most_buffer_pages), most_buffer_pages);
        buffer::limits& limits = shape_.limits;
        limits.files = static_cast<std::uint32_t>(std::max<std::size_t>(header.files.size(), 1));
        page_bytes_ = header.page_bytes;
        // A buffer needs so many pages for its sessions, however few the trace can ask for.
        const std::uint64_t most_host_pages =
            simulate_ ? there : std::max(there, buffer::least_host_pages(run_.threads, 1));
        status s = settle_size("--ram", ram_, most_host_pages, shape_.ram_bytes, limits.host_pages);
        if (s) s = settle_size("--gpu", gpu_, there, shape_.gpu_bytes, limits.device_pages);
        if (shape_.policy == policy_kind::native) shape_.gpu_bytes = limits.device_pages = 0;
        limits.pages = limits.host_pages + limits.device_pages + 1;
        if (s && shape_.policy == policy_kind::dedu) s = settle_dedu(there, limits);
        if (!s) return s;
        if (limits.check() != 0)
            return {-EINVAL, "--ram " + ram_ + " and --gpu " + gpu_ +
                                 " are more blocks than 32 bits can number; give less, or fewer "
                                 "with --blocks, --table or --absent"};
        run_.dedu.blocks_per_page = limits.blocks_per_page;
        run_.dedu.table_pages = limits.pages;
        run_.dedu.absent_blocks = limits.absent_blocks;
        return {};
    }

    status settle_dedu(std::uint64_t there, buffer::limits& out) const {
        // docs/apps/traces.md promises contents of such pieces.
        constexpr std::uint32_t least_block_bytes = 64;
        const std::uint32_t most =
            std::min(page_bytes_ / least_block_bytes, buffer::limits::most_blocks_per_page);
        out.blocks_per_page = 4;
        if (status s = parse_number<std::uint32_t>("--blocks", blocks_, 1, most,
                                                   "from 1 to " + std::to_string(most),
                                                   out.blocks_per_page);
            !s)
            return s;
        if (!std::has_single_bit(out.blocks_per_page) || page_bytes_ % out.blocks_per_page != 0)
            return {-EINVAL, "--blocks: " + blocks_ + " blocks do not make a page of " +
                                 std::to_string(page_bytes_) +
                                 " bytes; give a power of two that divides it"};
        const std::uint64_t both = std::uint64_t{out.host_pages} + out.device_pages;
        const std::uint64_t table = table_ == not_given ? 8 * both : table_,
                            absent =
                                absent_ == not_given ? 2 * both * out.blocks_per_page : absent_;
        out.pages = static_cast<std::uint32_t>(
            std::min({table, std::max(there, least_buffer_pages), most_buffer_pages}));
        // A page of the table points at each.
        out.absent_blocks = static_cast<std::uint32_t>(
            std::min({absent, std::uint64_t{out.pages} * out.blocks_per_page, most_absent}));
        return {};
    }

    // Over the bus, to and from the device.
    [[nodiscard]] std::uint64_t bytes_to_device(const outcome& done) const {
        return done.counts.demotions * (page_bytes_ / shape_.limits.blocks_per_page);
    }
    [[nodiscard]] std::uint64_t bytes_from_device(const outcome& done) const {
        return (done.counts.promotions + done.counts.device_write_backs) *
               (page_bytes_ / shape_.limits.blocks_per_page);
    }
    [[nodiscard]] double device_rate(const outcome& done) const {
        return ratio(static_cast<double>(bytes_to_device(done) + bytes_from_device(done)),
                     done.seconds);
    }
    [[nodiscard]] double ms_per_access(const outcome& done) const {
        return ratio(1e3 * done.seconds * run_.threads, static_cast<double>(done.accesses()));
    }

    [[nodiscard]] nlohmann::json json_of(const outcome& done) const {
        const std::uint64_t all = done.accesses();
        const buffer::manager_counts& counts = done.counts;
        nlohmann::json out = {
            {"trace", trace_},
            {"simulated", simulate_},
            {"policy", policy_},
            {"order", order_},
            {"ram_bytes", shape_.ram_bytes},
            {"gpu_bytes", shape_.gpu_bytes},
            {"page_bytes", page_bytes_},
            {"blocks_per_page", shape_.limits.blocks_per_page},
            {"accesses", all},
            {"reads", done.reads},
            {"writes", done.writes},
            {"flushes", done.flushes},
            {"host_hits", counts.host_hits},
            {"device_hits", counts.device_hits},
            {"misses", counts.misses},
            {"loads", counts.loads},
            {"write_backs", counts.write_backs},
            {"demotions", counts.demotions},
            {"promotions", counts.promotions},
            {"bytes_to_device", bytes_to_device(done)},
            {"bytes_from_device", bytes_from_device(done)},
            {"host_hit_share", share_of(counts.host_hits, all)},
            {"device_hit_share", share_of(counts.device_hits, all)},
            {"miss_share", share_of(counts.misses, all)},
            {"pages", done.held.pages},
            {"pages_with_sharing", done.held.pages_with_sharing},
            {"blocks", done.held.blocks},
            {"absent_blocks", done.held.absent_blocks},
            {"block_references", done.held.block_references},
            {"sharing_ratio", share_of(done.held.pages_with_sharing, done.held.pages)},
            {"seconds", done.seconds},
            {"accesses_per_second", ratio(static_cast<double>(all), done.seconds)}};
        if (simulate_)
            out.update({{"dropped_pages", done.dropped_pages},
                        {"fills", done.fills},
                        {"dirty_pages", done.dirty_pages}});
        else
            out.update({{"backend", done.on_gpu ? "gpu" : "cpu"},
                        {"threads", run_.threads},
                        {"past_the_page_cache", !run_.cached},
                        {"verified", run_.verify},
                        {"flush_seconds", done.flush_seconds},
                        {"ms_per_access", ms_per_access(done)},
                        {"device_bytes_per_second", device_rate(done)}});
        if (!simulate_ && shape_.policy != policy_kind::dedu)
            out.update({{"request_seconds", 1e-9 * static_cast<double>(counts.request_ns)},
                        {"device_seconds", 1e-9 * static_cast<double>(counts.device_ns)},
                        {"device_cost_share", share_of(counts.device_ns, counts.request_ns)}});
        if (!simulate_ && shape_.policy == policy_kind::gram)
            out.update({{"kept_back", counts.kept_back},
                        {"stand_backs", counts.stand_backs},
                        {"stands_back", counts.stands_back}});
        if (!simulate_ && shape_.policy == policy_kind::dedu)
            out.update({{"signature", signature_.empty() ? "quick" : signature_},
                        {"signed_on", sign_on_.empty() ? "cpu" : sign_on_},
                        {"looked_blocks", counts.looked_blocks},
                        {"shared_blocks", counts.shared_blocks},
                        {"compared_blocks", counts.compared_blocks},
                        {"differing_blocks", counts.differing_blocks}});
        return out;
    }

    [[nodiscard]] std::string text_of(const outcome& done) const {
        const std::uint64_t all = done.accesses();
        const auto told = [](std::uint64_t number, const char* label) {
            return apps::with_commas(number) + label;
        };
        const auto part = [&](std::uint64_t number, const char* label) {
            return told(number, label) + " (" +
                   apps::text_of("%.2f %%", 100 * share_of(number, all)) + ")";
        };
        const buffer::manager_counts& counts = done.counts;
        std::string out = policy_ + ", " + order_ +
                          (simulate_     ? ""
                           : done.on_gpu ? ", on gpu"
                                         : ", on cpu") +
                          ": " + told(all, " accesses in ") + apps::text_of("%.3f s", done.seconds);
        if (!simulate_) out += ", " + apps::text_of("%.4f ms", ms_per_access(done)) + " each";
        out += "\n" + part(counts.host_hits, " host hits") + ", " +
               part(counts.device_hits, " device hits") + ", " + part(counts.misses, " misses") +
               "\n" + told(counts.loads, " pages loaded, ") +
               told(counts.write_backs, " written back, ");
        if (!simulate_)
            return out + told(counts.demotions, " demoted, ") +
                   told(counts.promotions, " promoted; ") +
                   apps::text_of("%.1f MB/s", 1e-6 * device_rate(done)) +
                   " to and from the device\n" +
                   (counts.kept_back == 0
                        ? ""
                        : told(counts.kept_back, " not demoted, as the device would not pay\n"));
        out += told(done.dirty_pages, " still dirty\n");
        if (shape_.policy != policy_kind::native)
            out += told(counts.demotions, " blocks demoted, ") +
                   told(counts.promotions, " promoted\n");
        if (shape_.policy == policy_kind::dedu)
            out += told(done.held.pages, " pages at the end, ") +
                   told(done.held.pages_with_sharing, " of them share blocks: ") +
                   told(done.held.blocks, " blocks for ") + told(done.held.block_references, ", ") +
                   told(done.held.absent_blocks, " absent\n");
        return out;
    }

    static constexpr std::uint32_t not_given = UINT32_MAX;  // an empty text says the same
    std::string trace_, policy_, order_ = "lru", ram_, gpu_, blocks_, backend_, signature_,
                                 sign_on_;
    std::uint32_t threads_ = not_given, batch_ = not_given, batch_wait_ = not_given;
    std::uint64_t table_ = not_given, absent_ = not_given;
    bool simulate_ = false, always_dedu_ = false, always_gram_ = false;
    replay::buffer_shape shape_;
    replay::run_settings run_;
    std::uint32_t page_bytes_ = 0;
};

}  // namespace

std::unique_ptr<command> make_replay() { return std::make_unique<replay_command>(); }

}  // namespace penstock::cli
