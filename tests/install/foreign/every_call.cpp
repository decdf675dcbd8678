// The address of every function that the installed headers declare and do not define: it links only
// if the package has them.
#include <cstdio>
#include <type_traits>

#include <penstock/penstock.hpp>

namespace ps = penstock;

namespace {

int taken = 0;

// The compiler must believe that each address is used.
template <class... Function>
void take(Function... functions) {
    ((taken += functions != nullptr), ...);
}

void of_the_runtime() {
    using rt = ps::runtime;
    take(static_cast<ps::status (*)(const ps::options&, std::unique_ptr<rt>&)>(&rt::make), &rt::ref,
         &rt::where, &rt::settings, &rt::device_name, &rt::io_name, &rt::open,
         static_cast<int (rt::*)(int)>(&rt::close), &rt::open_everywhere,
         static_cast<int (rt::*)(const ps::shared_file&)>(&rt::close), &rt::device_count,

         static_cast<std::int64_t (rt::*)(int, void*, std::int64_t, std::int64_t)>(&rt::read),
         static_cast<std::int64_t (rt::*)(ps::cursor&, void*, std::int64_t)>(&rt::read), &rt::write,
         &rt::append, &rt::msync, &rt::fsync, &rt::truncate, &rt::unlink, &rt::rename, &rt::stat,
         static_cast<std::int64_t (rt::*)(int, std::int64_t, std::int64_t)>(&rt::prefetch),
         static_cast<std::int64_t (rt::*)(const ps::shared_file&, std::int64_t, std::int64_t)>(
             &rt::prefetch),
         &rt::advise, &rt::gather, &ps::map_region, &ps::mount_directory,
         static_cast<std::int64_t (rt::*)(int, std::int64_t, std::int64_t)>(&rt::open_windows),
         static_cast<std::int64_t (rt::*)(const std::string&)>(&rt::open_windows),
         static_cast<std::int64_t (rt::*)(const ps::shared_file&, std::int64_t, std::int64_t)>(
             &rt::open_windows),
         &rt::grow_windows, &rt::close_windows, &rt::allow, &rt::interrupt, &rt::resume,
         static_cast<ps::status (rt::*)() const>(&rt::health),
         static_cast<ps::status (rt::*)(std::uint32_t) const>(&rt::health), &rt::view_status,
         &rt::clear_view_status, &rt::write_status, &rt::clear_write_status,
         static_cast<ps::statistics (rt::*)() const>(&rt::stats),
         static_cast<ps::statistics (rt::*)(std::uint32_t) const>(&rt::stats), &rt::run_on_workers,
         &rt::run_on_devices, &rt::take_launch_count, &rt::give_back, &ps::interrupt_on_signals,
         &ps::was_interrupted);
}

void of_what_it_makes() {
    using mount = ps::file_mount;
    using region = ps::file_region;
    using pool = ps::buffer_pool;
    using file = ps::file;
    take(&mount::unmount, &mount::is_mounted, &mount::report, &region::data, &region::size_bytes,
         static_cast<std::int64_t (region::*)(ps::device_stream)>(&region::acquire),
         static_cast<std::int64_t (region::*)(ps::device_stream)>(&region::release),
         static_cast<std::int64_t (region::*)(const ps::region_part&, ps::device_stream)>(
             &region::acquire),
         static_cast<std::int64_t (region::*)(const ps::region_part&, ps::device_stream)>(
             &region::release),
         &region::acquire_async, &region::release_async, &ps::region_request::is_done,
         &ps::region_request::wait, &region::prefer, &region::sync, &region::close, &region::detach,
         &region::traffic, &region::placement, &region::placement_reason, &pool::make,
         &pool::open_file, &pool::close_file, &pool::discard_file, &pool::resize_file,
         &pool::file_bytes, &pool::open_session, &pool::counts, &pool::contents, &pool::is_on_gpu,
         &file::open, &file::read, &file::write, &file::append, &file::stat, &file::prefetch,
         &file::advise, &file::fsync, &file::truncate, &file::close);
    static_assert(std::is_same_v<decltype(ps::mount_options::buffer), pool*>);
    static_assert(std::is_destructible_v<mount> && std::is_destructible_v<region> &&
                  std::is_destructible_v<pool> && std::is_destructible_v<file>);
}

void of_settings_and_reports() {
    take(&ps::version, &ps::error_text, &ps::statistics::to_json, &ps::options::from_environment,
         &ps::options::check, &ps::parse_size, &ps::format_size, &ps::parse_backend,
         &ps::parse_io_method, &ps::parse_direct_mode, &ps::parse_trust_mode, &ps::parse_switch,
         static_cast<const char* (*)(ps::backend)>(&ps::name_of),
         static_cast<const char* (*)(ps::io_method)>(&ps::name_of),
         static_cast<const char* (*)(ps::direct_mode)>(&ps::name_of),
         static_cast<const char* (*)(ps::trust_mode)>(&ps::name_of), &ps::prometheus_metric,
         static_cast<std::string (*)(std::span<const ps::labelled_statistics>)>(
             &ps::prometheus_text),
         static_cast<std::string (*)(const ps::statistics&, const ps::metric_labels&)>(
             &ps::prometheus_text));
}

void of_tables() {
    take(&ps::describe, &ps::describe_raw, &ps::describe_npy, &ps::describe_safetensors,
         &ps::describe_checkpoint, &ps::table_layout::rows, &ps::options_for, &ps::table::make,
         &ps::table::ref, &ps::table::size, &ps::table::row_bytes, &ps::table::layout,
         &ps::table::check, &ps::table::sync, &ps::table::open_windows, &ps::table::grow_windows,
         &ps::table::gather<std::int32_t>, &ps::table::scatter<std::int64_t>,
         &ps::table::prefetch<std::uint32_t>, &ps::table::will_need<std::uint64_t>);
}

}  // namespace

int main() {
    of_the_runtime();
    of_what_it_makes();
    of_settings_and_reports();
    of_tables();
    // What a program holds by unique_ptr is also destroyed by it.
    const std::unique_ptr<ps::runtime> no_runtime;
    const std::unique_ptr<ps::file_mount> no_mount;
    const std::unique_ptr<ps::file_region> no_region;
    const std::unique_ptr<ps::buffer_pool> no_pool;
    std::printf("%d functions\n", taken);
    return taken > 70 ? 0 : 1;
}
