/*
 * The Windows service of the agent. It starts agent\tollhouse.exe and closes its standard input to stop it.
 *
 * Its argument is a folder, %ProgramData%\Tollhouse. It waits until agent.toml exists there, and starts the agent again
 * when that file changes or the agent ends. So the installer and the file may arrive in any order. The agent's log is
 * in Agent\agent.log.
 * Built by deploy/windows/build.sh. Run under wine by tests/deploy/test_windows.py, not on Windows.
 */
#include <windows.h>
#include <stdio.h>

#define NAME L"TollhouseAgent"
#define LOG_LIMIT (5 << 20) /* bytes; at a start, a larger log becomes agent.log.1 */
#define LOOK_MS 2000        /* between two looks at the settings */
#define STOP_MS 40000       /* the agent needs at most 28 s to stop */
#define LONGEST_PAUSE_MS 60000
#define STEADY_MS 60000     /* an agent that ran so long begins with the shortest pause again */

static SERVICE_STATUS_HANDLE handle;
static SERVICE_STATUS status = {SERVICE_WIN32_OWN_PROCESS};
static HANDLE asked_to_stop;
static WCHAR program[MAX_PATH], settings[MAX_PATH], data[MAX_PATH], log_file[MAX_PATH];

static void report(DWORD state, DWORD wait_ms) {
    status.dwCurrentState = state;
    status.dwControlsAccepted = state == SERVICE_RUNNING ? SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN : 0;
    status.dwWaitHint = wait_ms;
    SetServiceStatus(handle, &status);
}

static DWORD WINAPI on_control(DWORD control, DWORD type, void *event, void *context) {
    (void)type, (void)event, (void)context;
    if (control == SERVICE_CONTROL_STOP || control == SERVICE_CONTROL_SHUTDOWN) {
        report(SERVICE_STOP_PENDING, STOP_MS);
        SetEvent(asked_to_stop);
        return NO_ERROR;
    }
    return control == SERVICE_CONTROL_INTERROGATE ? NO_ERROR : ERROR_CALL_NOT_IMPLEMENTED;
}

/* Return when the settings were last written, or 0 if there are none. */
static ULONGLONG written(void) {
    WIN32_FILE_ATTRIBUTE_DATA found;
    if (!GetFileAttributesEx(settings, GetFileExInfoStandard, &found)) return 0;
    return (ULONGLONG)found.ftLastWriteTime.dwHighDateTime << 32 | found.ftLastWriteTime.dwLowDateTime;
}

/* Find the agent beside this program, and its files in `folder`, which may end with a backslash and a dot. */
static BOOL find_places(const WCHAR *folder) {
    WCHAR *end;
    int used = (int)wcslen(folder);
    DWORD length = GetModuleFileName(NULL, program, MAX_PATH);
    if (!length || length == MAX_PATH || !(end = wcsrchr(program, L'\\'))) return FALSE;
    *end = 0;
    if (wcslen(program) > MAX_PATH - 32) return FALSE;
    wcscat(program, L"\\agent\\tollhouse.exe");
    if (used > 2 && !wcscmp(folder + used - 2, L"\\.")) used -= 2;
    if (used > MAX_PATH - 32) return FALSE;
    swprintf(settings, MAX_PATH, L"%.*ls\\agent.toml", used, folder);
    swprintf(data, MAX_PATH, L"%.*ls\\Agent", used, folder);
    swprintf(log_file, MAX_PATH, L"%ls\\agent.log", data);
    return TRUE;
}

static HANDLE open_log(void) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    WIN32_FILE_ATTRIBUTE_DATA found;
    CreateDirectory(data, NULL);
    if (GetFileAttributesEx(log_file, GetFileExInfoStandard, &found) &&
        (found.nFileSizeHigh || found.nFileSizeLow > LOG_LIMIT)) {
        WCHAR old[MAX_PATH];
        swprintf(old, MAX_PATH, L"%ls.1", log_file);
        MoveFileEx(log_file, old, MOVEFILE_REPLACE_EXISTING);
    }
    return CreateFile(log_file, FILE_APPEND_DATA, FILE_SHARE_READ | FILE_SHARE_DELETE, &inherited, OPEN_ALWAYS,
                      FILE_ATTRIBUTE_NORMAL, NULL);
}

/* Start the agent in the job, which ends it with this process. `feed` is the writing end of its standard input. */
static HANDLE start_agent(HANDLE job, HANDLE *feed) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    STARTUPINFO start = {sizeof start};
    PROCESS_INFORMATION made = {0};
    WCHAR command[4 * MAX_PATH];
    HANDLE input, output;
    if (!CreatePipe(&input, feed, &inherited, 0)) return NULL;
    SetHandleInformation(*feed, HANDLE_FLAG_INHERIT, 0);
    output = open_log();
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = input;
    start.hStdOutput = start.hStdError = output;
    swprintf(command, 4 * MAX_PATH, L"\"%ls\" agent --config \"%ls\" --data \"%ls\" --until-stdin-ends", program,
             settings, data);
    if (CreateProcess(program, command, NULL, NULL, TRUE, CREATE_NO_WINDOW | CREATE_SUSPENDED, NULL, NULL, &start,
                      &made)) {
        AssignProcessToJobObject(job, made.hProcess);
        ResumeThread(made.hThread);
        CloseHandle(made.hThread);
    } else {
        CloseHandle(*feed);
    }
    CloseHandle(input);
    if (output != INVALID_HANDLE_VALUE) CloseHandle(output);
    return made.hProcess;
}

static void stop_agent(HANDLE agent, HANDLE feed) {
    CloseHandle(feed);
    if (WaitForSingleObject(agent, STOP_MS) != WAIT_OBJECT_0) TerminateProcess(agent, 1);
    CloseHandle(agent);
}

/* Wait until the settings are others than `known` (TRUE), or the service has to stop (FALSE). */
static BOOL wait_for_settings(ULONGLONG known) {
    while (WaitForSingleObject(asked_to_stop, LOOK_MS) == WAIT_TIMEOUT) {
        ULONGLONG now = written();
        if (now && now != known) return TRUE;
    }
    return FALSE;
}

static void keep_running(HANDLE job) {
    DWORD pause_ms = LOOK_MS;
    if (!written() && !wait_for_settings(0)) return;
    for (;;) {
        HANDLE feed = NULL, waited[2] = {asked_to_stop};
        ULONGLONG known = written(), began = GetTickCount64();
        DWORD woken = WAIT_TIMEOUT, code = 1;
        HANDLE agent = start_agent(job, &feed);
        if (agent) {
            waited[1] = agent;
            while (woken == WAIT_TIMEOUT && written() == known)
                woken = WaitForMultipleObjects(2, waited, FALSE, LOOK_MS);
            if (woken != WAIT_OBJECT_0 + 1) {
                stop_agent(agent, feed);
                if (woken == WAIT_OBJECT_0) return;
                if (!written() && !wait_for_settings(0)) return;
                continue; /* with the changed settings */
            }
            GetExitCodeProcess(agent, &code);
            CloseHandle(agent);
            CloseHandle(feed);
        }
        if (code == 2) { /* only other settings help */
            if (!wait_for_settings(known)) return;
        } else {
            if (GetTickCount64() - began > STEADY_MS) pause_ms = LOOK_MS;
            if (WaitForSingleObject(asked_to_stop, pause_ms) == WAIT_OBJECT_0) return;
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS);
        }
    }
}

static void WINAPI service_main(DWORD count, WCHAR **words) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    HANDLE job = CreateJobObject(NULL, NULL);
    (void)count, (void)words;
    handle = RegisterServiceCtrlHandlerEx(NAME, on_control, NULL);
    asked_to_stop = CreateEvent(NULL, TRUE, FALSE, NULL);
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    report(SERVICE_RUNNING, 0);
    keep_running(job);
    report(SERVICE_STOPPED, 0);
}

int wmain(int count, WCHAR **words) {
    SERVICE_TABLE_ENTRY table[] = {{(WCHAR *)NAME, service_main}, {NULL, NULL}};
    if (count != 2 || !find_places(words[1])) return 2;
    return StartServiceCtrlDispatcher(table) ? 0 : 1;
}
