#include "data_files.hpp"

#include <algorithm>
#include <atomic>

#include "common/pieces.hpp"
#include "common/progress.hpp"
#include "common/threads.hpp"

namespace penstock::trace {

namespace {

constexpr std::uint64_t piece_bytes = 4u << 20;

}  // namespace

status data_files::make(const trace_header& header, std::uint32_t threads, bool quiet) {
    const std::uint64_t piece_pages = piece_bytes / header.page_bytes;
    std::vector<std::uint64_t> first_piece{0};  // of each file, and last the count of all
    std::uint64_t pages = 0;
    for (const file_entry& file : header.files) {
        files_.push_back(std::make_unique<apps::output_file>());
        if (status s = files_.back()->open_named(file.path); !s) return s;
        first_piece.push_back(first_piece.back() + apps::pieces_of(file.pages, piece_pages));
        pages += file.pages;
    }
    std::atomic<std::uint64_t> next{0}, made{0};
    const apps::progress bar(
        "data", pages, [&made] { return made.load(); }, !quiet);
    apps::first_error errors;
    apps::on_threads(
        static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, first_piece.back())),
        [&](std::uint32_t) {
            std::vector<std::byte> bytes(piece_bytes);
            for (std::uint64_t piece = next.fetch_add(1);
                 piece < first_piece.back() && !errors.stop(); piece = next.fetch_add(1)) {
                const auto f = static_cast<std::uint32_t>(
                    std::upper_bound(first_piece.begin(), first_piece.end(), piece) -
                    first_piece.begin() - 1);
                const std::uint64_t first = (piece - first_piece[f]) * piece_pages,
                                    here = std::min(piece_pages, header.files[f].pages - first);
                for (std::uint64_t i = 0; i < here; ++i)
                    fill_page(made_content(*header.contents, f, first + i),
                              bytes.data() + i * header.page_bytes, header.page_bytes);
                errors.note(files_[f]->write_at(bytes.data(), here * header.page_bytes,
                                                first * header.page_bytes));
                made += here;
            }
        });
    return errors.get();
}

status data_files::commit() {
    for (const auto& file : files_)
        if (status s = file->commit(); !s) return s;
    return {};
}

}  // namespace penstock::trace
