// What the methods share, and what CPU threads do: the baseline on all cores (vector code over
// memory maps), and the gathering for the CUDA baseline.
#include "methods.hpp"

#include <bit>
#include <cerrno>
#include <cstring>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/vectors.hpp"

namespace penstock::collage {

namespace {

status copy_failed() {
    return {-EIO, "a picture could not be copied to or from the device; is the GPU in order?"};
}

}  // namespace

status block_error(const library& from, int code) {
    if (code == 0) return {};
    if (code == -EBADMSG)
        return {
            code,
            "library " + apps::shown(from.path) +
                ": a hash table is damaged; make the library again with penstock-collage index"};
    if (code == -ESTALE)
        return {code, "library " + apps::shown(from.path) +
                          ": a file changed while it was read; "
                          "run again when no program writes to it"};
    return {code, "library " + apps::shown(from.path) + ": " + error_text(code)};
}

namespace {

status no_room(const std::string& what, const picture& in, const char* cure) {
    return {-ENOMEM, "the pictures need " + format_size(2 * in.rgb.size()) + " of memory that " +
                         what + "; " + cure};
}

// What one device has of its own. Kernels write to `shared_out`, or if that is null to memory of
// the device.
bool place_side(const collage_job& job, bool on_gpu, std::uint8_t* shared_out, collage_side& side) {
    const library_header& h = job.from.header;
    const picture& in = job.in;
    apps::device_memory& memory = *side.memory;
    collage_view& v = side.view;
    v.width = in.width;
    v.height = in.height;
    v.columns = (in.width + tile_side - 1) / tile_side;
    v.rows = (in.height + tile_side - 1) / tile_side;
    v.tile_count = h.tile_count;
    for (std::uint32_t t = 0; t < tables; ++t)
        v.table_entries[t] = static_cast<std::uint32_t>(h.table_entries[t]);
    const lsh_family family = make_family(h.seed, h.width);
    v.lsh.width = h.width;
    v.lsh.slots = h.slots;
    v.picture = in.rgb.data();
    v.out = shared_out;
    std::uint8_t* room = nullptr;
    std::uint32_t* order = nullptr;
    bool placed = memory.place(v.lsh.coefficients, family.coefficients) &&
                  memory.place(v.lsh.offsets, family.offsets) &&
                  memory.allocate(v.seen, (h.tile_count + 63) / 64) &&
                  memory.allocate(v.totals, 1) && memory.allocate(order, v.blocks());
    v.order = order;
    if (placed && on_gpu) {
        placed = memory.allocate(room, in.rgb.size());
        v.picture = room;
    }
    if (placed && v.out == nullptr) placed = memory.allocate(v.out, in.rgb.size());
    return placed;
}

}  // namespace

status place_collage(const collage_job& job, bool on_gpu, picture& out, collage_sides& sides) {
    const picture& in = job.in;
    out.width = in.width;
    out.height = in.height;
    out.rgb.assign(in.rgb.size(), 0);
    if (on_gpu) {
        sides.front().memory->pin(in.rgb.data(), in.rgb.size());
        sides.front().memory->pin(out.rgb.data(), out.rgb.size());
    }
    for (collage_side& side : sides) {
        std::uint8_t* shared_out = nullptr;
        if (!on_gpu || sides.size() > 1) {
            shared_out = static_cast<std::uint8_t*>(side.memory->reach(out.rgb.data()));
            if (shared_out == nullptr)
                return no_room("could not be pinned for all GPUs", in,
                               "use a smaller picture, or one GPU (--device)");
        }
        if (!place_side(job, on_gpu, shared_out, side))
            return no_room("is not free", in, "use a smaller --cache or picture");
    }
    return {};
}

status timed_collage(const collage_job& job, const collage_sides& sides, method_report& report,
                     const std::function<status(const std::vector<std::uint32_t>&)>& compute,
                     const std::function<status()>& fetch) {
    const double cpu_before = apps::cpu_seconds();
    apps::stopwatch watch, part;
    const std::vector<std::uint8_t>& rgb = job.in.rgb;
    for (const auto& [memory, v] : sides)
        if (v.picture != rgb.data() &&
            !memory->begin_upload(const_cast<std::uint8_t*>(v.picture), rgb.data(), rgb.size()))
            return copy_failed();
    const std::vector<std::uint32_t> order =
        block_order(job.in, apps::thread_count(job.settings.worker_threads));
    report.parts.emplace_back("order", part.lap());
    for (const auto& [memory, v] : sides)
        if (!memory->upload(const_cast<std::uint32_t*>(v.order), order.data(),
                            order.size() * sizeof(std::uint32_t)))
            return copy_failed();
    report.parts.emplace_back("upload", part.lap());
    status ended = compute(order);
    report.parts.emplace_back("compute", part.lap());
    if (ended.ok()) ended = fetch();
    report.parts.emplace_back("download", part.lap());
    report.seconds = {watch.lap()};
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    if (status s = apps::not_interrupted(); !s) return s;
    return ended;
}

status download_result(const collage_sides& sides, picture& out,
                       std::vector<collage_totals>& totals) {
    totals.resize(sides.size());
    bool copied = true;
    for (std::size_t i = 0; i < sides.size(); ++i)
        copied =
            sides[i].memory->download(&totals[i], sides[i].view.totals, sizeof totals[i]) && copied;
    // Several devices have written to the collage itself.
    const collage_side& first = sides.front();
    if (sides.size() == 1 && first.view.out != out.rgb.data())
        copied = first.memory->download(out.rgb.data(), first.view.out, out.rgb.size()) && copied;
    return copied ? status{} : copy_failed();
}

status note_counts(const collage_job& job, const collage_sides& sides,
                   const std::vector<collage_totals>& totals, method_report& report) {
    std::vector<std::uint64_t> seen((job.from.header.tile_count + 63) / 64), of_side(seen.size());
    bool copied = true;
    int code = 0;
    for (std::size_t i = 0; i < sides.size(); ++i) {
        copied = sides[i].memory->download(of_side.data(), sides[i].view.seen,
                                           of_side.size() * sizeof(std::uint64_t)) &&
                 copied;
        for (std::size_t word = 0; word < seen.size(); ++word) seen[word] |= of_side[word];
        report.evaluations_by_device.push_back(totals[i].evaluations);
        report.evaluations += totals[i].evaluations;
        report.fallback_blocks += totals[i].fallback_blocks;
        if (code == 0) code = totals[i].code;
    }
    for (const std::uint64_t bits : seen)
        report.unique_tiles += static_cast<std::uint64_t>(std::popcount(bits));
    if (code != 0) return block_error(job.from, code);
    return copied ? status{} : copy_failed();
}

status make_with_cpu(const collage_job& job, picture& out, method_report& report) {
    apps::stopwatch watch;
    mapped_library mapped;
    if (status s = mapped.open(job.from); !s) return s;
    collage_sides sides(1);
    sides.front().memory = apps::make_host_memory();
    if (status s = place_collage(job, false, out, sides); !s) return s;
    const collage_view& view = sides.front().view;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    report.note = std::to_string(threads) + " threads, vectors of " + vector_name();
    report.blocks = view.blocks();
    report.start_seconds = watch.lap();

    std::atomic<std::uint64_t> done{0};
    const auto compute = [&](const std::vector<std::uint32_t>& order) {
        const apps::progress bar(
            "blocks", order.size(), [&] { return done.load(); }, !job.quiet);
        return apps::on_pieces(threads, order.size(), 1,
                               [&](std::uint32_t, std::uint64_t i, std::uint64_t) -> status {
                                   state_of<lane> state;
                                   state.block = order[i];
                                   make_block(lane{}, mapped, view, state);
                                   ++done;
                                   return {};
                               });
    };
    std::vector<collage_totals> totals;
    const auto fetch = [&] { return download_result(sides, out, totals); };
    if (status s = timed_collage(job, sides, report, compute, fetch); !s) return s;
    const status ended = note_counts(job, sides, totals, report);
    report.pages_read = report.unique_tiles;
    return ended;
}

// The tile's record in this batch. Of threads that want the same tile at once, one reads it,
// the others only need to know where it will be; a place that was taken in vain stays empty.
int gatherer::stage(std::uint32_t id, staged_batch& out, std::uint32_t& record) {
    std::uint64_t known = staged_[id];
    if (known >> 32 != batch_) {
        const std::uint32_t own_record = used_records_++;
        if (staged_[id].compare_exchange_strong(known, batch_ << 32 | own_record)) {
            record = own_record;
            out.ids[own_record] = id;
            ++records_read_;
            if (known == 0) ++unique_tiles_;
            return apps::read_all(library_.histograms_fd(),
                                  out.records + std::uint64_t{own_record} * bins, record_bytes,
                                  std::uint64_t{id} * record_stride_bytes);
        }
        out.ids[own_record] = no_tile;
    }
    record = static_cast<std::uint32_t>(known);
    return 0;
}

// The block's references, most_candidates or fewer, from `references` on.
int gatherer::gather_block(std::uint64_t block, staged_batch& out,
                           std::atomic<std::uint32_t>& references) {
    const lane single{};
    state_of<lane> s;
    s.count = s.first = s.code = 0;
    for (std::uint32_t& place : s.set) place = no_tile;
    std::memcpy(s.keys, keys_ + std::uint64_t{order_[block]} * tables, sizeof s.keys);
    for (std::uint32_t t = 0; t < tables; ++t)
        if (const int code = gather_table(single, single, library_, view_, t, s); code != 0)
            return code;
    if (fall_back(single, view_.tile_count, s)) ++fallback_blocks_;
    evaluations_ += s.count;
    const std::uint32_t begin = references.fetch_add(s.count);
    out.ranges[block - out.first_block] = {begin, s.count};
    for (std::uint32_t i = 0; i < s.count; ++i)
        if (const int code = stage(s.list[i], out, out.references[begin + i]); code != 0)
            return code;
    return 0;
}

status gatherer::gather(std::uint64_t first_block, staged_batch& out) {
    ++batch_;
    out.first_block = first_block;
    used_records_ = 0;
    std::atomic<std::uint32_t> references{0};
    std::atomic<std::uint64_t> next{first_block};
    std::atomic<int> code{0};
    apps::on_threads(threads_, [&](std::uint32_t) {
        while (code == 0 && !was_interrupted()) {
            if (used_records_ >= batch_records || references >= batch_references) return;
            std::uint64_t block = next;
            // One at a time and never past the end, so that what was taken is a run of blocks
            // without a gap.
            do {
                if (block >= view_.blocks() || block - first_block >= batch_blocks) return;
            } while (!next.compare_exchange_weak(block, block + 1));
            if (const int failed = gather_block(block, out, references); failed != 0) code = failed;
        }
    });
    out.blocks = static_cast<std::uint32_t>(next - first_block);
    out.record_count = used_records_;
    out.reference_count = references;
    if (status s = apps::not_interrupted(); !s) return s;
    return {code, ""};
}

PENSTOCK_CLONES("avx512f", "avx2", "default")
std::uint32_t distance_of(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += squared_difference(a[i], b[i]);
    return sum;
}

const char* vector_name() {
#if defined(__x86_64__)
    const apps::vectors here = apps::vectors_here();
    return here == apps::vectors::avx512 ? "AVX-512"
           : here == apps::vectors::avx2 ? "AVX2"
                                         : "SSE2";
#else
    return "the compiler's vectors";
#endif
}

}  // namespace penstock::collage
